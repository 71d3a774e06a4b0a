"""How long a look at a table takes: cold, warm, and after 1 % of its manifests have changed.

    python -m bench.observe [files ...]        default 10000 100000

Writes manifests of the given number of entries with 16 columns and bounds (no data file), reads
them once with an empty cache, again, and once more after replacing one manifest in a hundred.
pyiceberg's own entry loop over the same manifests stands beside. Seconds are after the catalog's
answer; memory is the process's peak, in a child of its own.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COLUMNS = 16
MANIFESTS = 100


def build(directory: Path, files: int) -> Any:
    """A table whose snapshot has `files` entries in MANIFESTS manifests."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    (directory / "warehouse").mkdir()
    catalog = SqlCatalog(
        "bench", uri=f"sqlite:///{directory}/c.db", warehouse=f"file://{directory}/warehouse"
    )
    catalog.create_namespace("db")
    schema = Schema(
        *(
            NestedField(n + 1, f"c{n}", LongType() if n % 2 else StringType(), required=False)
            for n in range(COLUMNS)
        )
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c1"))
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    per_manifest = max(1, files // MANIFESTS)
    for start in range(0, files, per_manifest):
        append(table, range(start, min(files, start + per_manifest)))
    return catalog.load_table("db.t")


def append(table: Any, numbers: range) -> None:
    """Commits data files that exist only in metadata: that is all a look reads."""
    with table.transaction() as transaction:  # noqa: SIM117
        with transaction.update_snapshot().fast_append() as update:
            for number in numbers:
                update.append_data_file(data_file(table, number))


def data_file(table: Any, number: int) -> Any:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    ids = range(1, COLUMNS + 1)

    def bounds(offset: int) -> dict[int, bytes]:
        return {
            i: f"value-{number + offset:010d}".encode()
            if i % 2
            else struct.pack("<q", number * 10 + offset)
            for i in ids
        }

    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/c1={number % 36}/00000-{number}-3f9a1c0b-77de.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(number % 36),
        record_count=1000,
        file_size_in_bytes=10_000_000,
        column_sizes={i: 1000 + i for i in ids},
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds=bounds(0),
        upper_bounds=bounds(9),
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=0,
    )
    file.spec_id = table.spec().spec_id
    return file


def look(directory: Path) -> dict[str, Any]:
    """One observation in this process, as JSON on stdout when run as a child."""
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.catalog.load import connect, load_table
    from reconciler.catalog.observe import observe_loaded

    config = CatalogConfig(
        "bench",
        "sql",
        {
            "uri": f"sqlite:///{directory}/c.db",
            "warehouse": f"file://{directory}/warehouse",
        },
    )
    table = load_table(connect(config), config, ("db", "t"))
    seen = observe_loaded(table, "bench", ("db", "t"), directory / "cache")
    return {
        "files": len(seen.files),
        "seconds": round(seen.seconds, 3),
        "manifests": seen.manifests,
        "read": seen.manifests_read,
        "peakMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def child(directory: Path, *flags: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--look", str(directory), *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def reference(directory: Path) -> dict[str, Any]:
    """pyiceberg's entry loop over the same manifests, bounds left as bytes."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{directory}/c.db")
    table = catalog.load_table("db.t")
    started = time.perf_counter()
    entries = 0
    for manifest in table.current_snapshot().manifests(table.io):
        entries += len(manifest.fetch_manifest_entry(table.io))
    return {"files": entries, "seconds": round(time.perf_counter() - started, 3)}


def run(files: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        table = build(directory, files)
        lines = {"cold": child(directory), "warm": child(directory)}
        append(table, range(files, files + max(1, files // MANIFESTS)))
        lines["1 % new"] = child(directory)
        lines["pyiceberg entry loop"] = child(directory, "--reference")
    for label, result in lines.items():
        print(f"{files:>8,} files  {label:<22}  {json.dumps(result)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        work = reference if "--reference" in sys.argv else look
        print(json.dumps(work(Path(sys.argv[2]))))
    else:
        for size in [int(argument) for argument in sys.argv[1:]] or [10_000, 100_000]:
            run(size)
