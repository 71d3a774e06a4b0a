"""Creates the demo's tables: TPC-H in the generator's own order, appended to an embedded Iceberg
catalog.

tpchgen-cli splits orders and lineitem into parts by order key; each part is one append, as a system
of record delivers orders. We neither shuffle nor sort anything. The last parts are kept back: they
arrive after the first reconcile.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import UnavailableError, UserError

CATALOG = "demo"
NAMESPACE = "tpch"
FACTS = ("lineitem", "orders")
OTHERS = ("customer", "nation", "part", "partsupp", "region", "supplier")
MARKER = ".layoutctl-demo"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much data the demo makes, and how."""

    scale_factor: float
    """Of TPC-H."""
    parts: int
    """Number of parts in which the facts arrive."""
    late_parts: int
    """How many of them arrive late."""
    target_bytes: int
    """The policy's file size, small enough that this little data is many files."""
    governed: tuple[str, ...] = FACTS
    """The tables that the policy names."""

    @property
    def first_parts(self) -> range:
        return range(1, self.parts - self.late_parts + 1)

    @property
    def last_parts(self) -> range:
        return range(self.parts - self.late_parts + 1, self.parts + 1)

    @property
    def largest_order(self) -> int:
        """Largest order key of the first load; keys are sparse (clause 4.2.3)."""
        return int(6_000_000 * self.scale_factor * len(self.first_parts) / self.parts)


FULL = Scale(scale_factor=1.0, parts=60, late_parts=5, target_bytes=8 << 20)
QUICK = Scale(0.05, parts=10, late_parts=2, target_bytes=1 << 20, governed=("lineitem",))


@dataclass(frozen=True, slots=True)
class Place:
    """The demo's directory. Everything that the demo writes is below it."""

    root: Path

    @property
    def generated(self) -> Path:
        return self.root / "generated"

    @property
    def database(self) -> Path:
        return self.root / "catalog.db"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def layouts(self) -> Path:
        return self.root / "layouts"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def logs(self) -> Path:
        return self.root / "query-logs"


def prepare(root: Path) -> Place:
    """Return a fresh demo directory. Raises UserError if the directory belongs to someone else."""
    place = Place(root.absolute())
    if place.root.exists() and not (place.root / MARKER).is_file() and any(place.root.iterdir()):
        raise UserError(
            f"{root} exists and was not made by the demo",
            do="name another directory with --dir, or move this one away",
        )
    if place.root.exists():
        _remove_own(place)
    for directory in (place.root, place.layouts, place.logs, place.warehouse):
        directory.mkdir(parents=True, exist_ok=True)
    (place.root / MARKER).write_text("made by layoutctl demo; it may be deleted as a whole\n")
    return place


def _remove_own(place: Place) -> None:
    """Delete what earlier demos wrote here, except generated data of the same scale."""
    import shutil

    for path in (place.warehouse, place.layouts, place.state, place.logs):
        shutil.rmtree(path, ignore_errors=True)
    for path in place.root.glob("catalog.db*"):
        path.unlink()


def generate(place: Place, scale: Scale) -> Path:
    """Return the directory of Parquet files of all eight tables, facts in parts; existing ones are
    reused."""
    target = place.generated / f"sf{scale.scale_factor:g}-{scale.parts}"
    done = target / "complete"
    if done.is_file():
        return target
    with ThreadPoolExecutor(2) as pool:  # each takes one core
        facts = pool.submit(_tpchgen, target, scale, FACTS, parts=scale.parts)
        others = pool.submit(_tpchgen, target, scale, OTHERS, parts=None)
        facts.result()
        others.result()
    done.write_text("")
    return target


def _tpchgen(target: Path, scale: Scale, tables: tuple[str, ...], parts: int | None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    command = [
        generator(), "parquet", "--scale-factor", f"{scale.scale_factor:g}",
        "--tables", ",".join(tables), "--output-dir", str(target), "--quiet", "--overwrite",
    ]  # fmt: skip
    if parts is not None:
        command += ["--parts", str(parts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(
            "tpchgen-cli failed to generate the demo's data",
            details=tuple(done.stderr.strip().splitlines()[-3:]),
            do="check the free space and the rights of the demo's directory, then run it again",
        )


def generator() -> str:
    """Return the path of tpchgen-cli; the extra `demo` installs it beside this Python."""
    import shutil

    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if found is None:
        raise UserError(
            "the demo needs tpchgen-cli, which generates TPC-H data",
            do="pip install 'table-layout-reconciler[demo]'",
        )
    return found


def open_catalog(place: Place) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(CATALOG, **catalog_properties(place))


def catalog_properties(place: Place) -> dict[str, str]:
    return {
        "uri": f"sqlite:///{place.database}?timeout=30",
        "warehouse": place.warehouse.as_uri(),
    }


def create_tables(catalog: Any, generated: Path) -> None:
    """Create eight empty tables with TPC-H's columns, then fill the six small ones."""
    catalog.create_namespace_if_not_exists(NAMESPACE)
    for name in FACTS:
        first = sorted((generated / name).glob("*.parquet"))[0]
        catalog.create_table((NAMESPACE, name), _plain(_read(first)).schema)
    for name in OTHERS:
        rows = _plain(_read(generated / f"{name}.parquet"))
        catalog.create_table((NAMESPACE, name), rows.schema).append(rows)


def arrive(catalog: Any, generated: Path, parts: range) -> None:
    """Append the given parts of orders and lineitem, one commit per part, in order."""
    for name in FACTS:
        table = catalog.load_table((NAMESPACE, name))
        for part in parts:
            table.append(_plain(_read(generated / name / f"{name}.{part}.parquet")))


def copy_of(catalog: Any, name: str, copy: str) -> None:
    """Create another table over the same data files, for Iceberg's own procedure to work on."""
    source = catalog.load_table((NAMESPACE, name))
    table = catalog.create_table((NAMESPACE, copy), source.schema())
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for task in source.scan().plan_files():
            append.append_data_file(task.file)


def _read(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _plain(rows: Any) -> Any:
    """Return rows without the file's field ids and with plain strings, as an ingest job would have
    them."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string() if pa.types.is_string_view(field.type) else field.type)
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
