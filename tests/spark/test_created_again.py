"""A table that is dropped, renamed or created again while a rewrite of it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.commit import commit
from reconciler.errors import EXIT_USER, StalePlanError
from reconciler.plan.actions.rewrite import Cluster, Recluster
from tests.spark.equality import on_disk
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

ENDS = ("created again", "created elsewhere", "renamed", "dropped")


def needed(root: Path) -> set[str]:
    """Names of the files that any metadata file below the root refers to, as pyiceberg reads it."""
    from pyiceberg.table import StaticTable

    found = set()
    for path in root.rglob("*.metadata.json"):
        table = StaticTable.from_metadata(f"file://{path}")
        for snapshot in table.metadata.snapshots:
            found.add(Path(snapshot.manifest_list).name)
            for manifest in snapshot.manifests(table.io):
                found.add(Path(manifest.manifest_path).name)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                found |= {Path(entry.data_file.file_path).name for entry in entries}
    return found


def unneeded(root: Path) -> list[Path]:
    files = [path for path in root.rglob("*") if path.is_file()]
    kept, plain = needed(root), (".metadata.json", ".crc")
    return [it for it in files if not it.name.endswith(plain) and it.name not in kept]


def _end(bench: Bench, name: str, how: str, elsewhere: Path) -> None:
    full = bench.full(name)
    bench.sql(f"ALTER TABLE {full} RENAME TO jobs.{name}_old" if how == "renamed" else
              f"DROP TABLE {full}")  # fmt: skip
    if how == "dropped":
        return
    place = f" LOCATION 'file:{elsewhere}'" if how == "created elsewhere" else ""
    bench.sql(f"CREATE TABLE {full} (id bigint, s string) USING iceberg{place}")
    bench.append(name, {"id": [7], "s": ["new"]})


def _at(moment: str, act: Callable[[], None], patched: pytest.MonkeyPatch) -> Any:
    """Return an `on_event` that acts at the moment, once; or patch what happens then."""
    left = [act]

    def once() -> None:
        if left:
            left.pop()()

    places: dict[str, tuple[Any, str]] = {
        "before a batch is sent": (commit, "prepare"),
        "in the commit": (commit.Guard, "allows"),
    }
    if moment in places:
        owner, step = places[moment]
        honest = getattr(owner, step)

        def acting(*parts: Any, **more: Any) -> Any:
            result = honest(*parts, **more)
            once()
            return result

        patched.setattr(owner, step, acting)
    return lambda event: once() if event.phase == moment else None


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        ("verified", "created again"),
        ("before a batch is sent", "created elsewhere"),
        *(("in the commit", how) for how in ENDS),
        *(("committed", how) for how in ENDS),
    ],
)
def test_a_rewrite_of_a_table_that_is_another_now_ends_and_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str, how: str
) -> None:
    """Its files go, except those that were committed to the table of before, which may live on."""
    name = bench.create("id bigint, s string", "'format-version'='2'")
    bench.write(name, 4, 20, "n + 100 * file, 'x'")
    rows, root = bench.rows(name), on_disk(bench.table(name).location())
    kind = Recluster if moment == "committed" else Cluster
    parts = 2 if kind is Recluster else 1
    action = bench.action(name, kind, "id")
    request = bench.request(name, action, group_bytes=1, max_commits=parts)
    with monkeypatch.context() as patched:
        on_event = _at(moment, lambda: _end(bench, name, how, tmp_path / "new"), patched)
        with pytest.raises(StalePlanError) as raised:
            bench.run(request, on_event)
    assert raised.value.exit_code == EXIT_USER
    assert unneeded(root) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()
    if how == "renamed":
        assert bench.rows(f"{name}_old") == rows
    if how == "dropped":
        return
    bench.append(name, {"id": [8], "s": ["more"]})
    follow = bench.request(name, bench.action(name, Cluster, "id"), plan="p-2")
    assert bench.run(follow).done
    assert sum(bench.rows(name).values()) == 2
    assert unneeded(root) == []
