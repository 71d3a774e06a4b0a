"""Names of tables, columns and partitions that end lines, command terminals or turn text around."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.in_process import isolate, runner

FORGED = "FORGED approved"
TAIL = f"\n{FORGED}\x1b[31m\u202e\u2028{FORGED}|<b>"
ROWS = pa.table({f"k{TAIL}": [7, 99], "region": [f"eu{TAIL}"] * 2})


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of such names, and queries of it."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    isolate(monkeypatch, tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")
    uri = f"sqlite:///{tmp_path}/c.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__EV__URI", uri)
    catalog = SqlCatalog("ev", uri=uri, warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    schema = Schema(
        NestedField(1, ROWS.column_names[0], LongType()), NestedField(2, "region", StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), f"region{TAIL}"))
    name = f"orders{TAIL}"
    made = catalog.create_table(("sales", name), schema, partition_spec=spec)
    for _ in range(6):
        made.append(ROWS)
    query = f'SELECT * FROM sales."{name}" WHERE "{ROWS.column_names[0]}" = 7'
    lines = [
        json.dumps({"sql": query, "timestamp": f"2026-11-2{day}T08:00:00Z"}) for day in range(5)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    return f"ev.sales.{name}"


def test_no_name_begins_a_line_or_commands_the_terminal(
    table: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Its name is read whole in documents, so that programs find the table."""
    run = runner(monkeypatch, capsys)
    for arguments in (
        ("workload", "import", "--dialect", "trino", "log.jsonl"),
        ("workload", "show"),
        ("workload", "show", table, "--show-literals"),
        ("observe",),
        ("observe", "-o", "name"),
        ("observe", "-o", "markdown"),
        ("observe", table),
        ("observe", table, "-o", "markdown"),
        ("top",),
        ("top", "-o", "name"),
        ("plan", table),
        ("plan", table, "-o", "wide"),
        ("plan", table, "-o", "markdown"),
        ("explain", table),
        ("explain", table, "-o", "name"),
        ("recommend", table),
        ("recommend", table, "-o", "markdown"),
        ("undo", table),
        ("apply", table),
        ("observe", f"ev.sales.`none{TAIL}`"),
    ):
        _, out, err = run(*arguments)
        for line in (out + err).splitlines():
            assert not line.lstrip(" #`*|>").startswith(FORGED), arguments
        assert FORGED in out + err, arguments
        assert not set("\x1b\u202e\u2028") & set(out + err), arguments
    body = json.loads(run("plan", table, "-o", "json")[1])
    assert body["table"] == ["sales", f"orders{TAIL}"]
