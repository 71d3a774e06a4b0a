"""The same queries as the histories of many systems give the same workload.

`histories/` has records that a real Trino 476 and a real DuckDB 1.5.5 wrote (of Trino without plans
and statistics); the records of the other systems are made here by their documented columns.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.api.schema import CATALOG, spec_schema
from reconciler.cli import workload as workload_verb
from reconciler.errors import UnusableLogError, UserError
from reconciler.workload_log import containers, skip_reasons
from reconciler.workload_log.histories import HISTORIES, MAPPED, NAMES, mapped
from reconciler.workload_log.history_lines import amount
from reconciler.workload_log.importing import Tally
from reconciler.workload_log.line_fields import epoch_ms
from reconciler.workload_log.log_lines import kind_of
from reconciler.workload_log.sql import Session, SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import SchemaMap
from reconciler.workload_log.unusable import why_unusable
from tests.workload_log.oracle import known_tables
from tests.workload_log.sinks import MemorySink

REAL = Path(__file__).parent / "histories"
KNOWN = known_tables({
    "t": (("id", "long"), ("day", "date"), ("kind", "string"), ("amount", "long")),
    "u": (("id", "long"), ("kind", "string")),
})  # fmt: skip
TABLES = SchemaMap(
    {
        ("rec", "lake", name): replace(table, name=f"rec.lake.{name}")
        for name, table in KNOWN.items()
    }
)
START = dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC)
COUNT = 600

Record = dict[str, Any]


def sql(number: int) -> str:
    return (
        f"SELECT id, kind FROM lake.t WHERE id = {number}",
        f"SELECT amount FROM lake.t WHERE kind = 'a{number}'\n  AND amount > {number}",
        f"SELECT id FROM lake.t WHERE day >= CAST('2026-01-{number % 28 + 1:02d}' AS DATE)",
    )[number % 3]


def at(number: int) -> dt.datetime:
    return START + dt.timedelta(seconds=number * 60)


def text(number: int, zone: str = "") -> str:
    return at(number).strftime("%Y-%m-%d %H:%M:%S.000") + zone


def ident(number: int) -> str:
    return f"0000{number:04d}-aaaa-bbbb-cccc-dddddddddddd"


def millis(number: int) -> int:
    return int(at(number).timestamp() * 1000)


def trino(n: int) -> Record:
    return {
        "metadata": {"queryId": f"20260301_080000_{n:05d}_abcde", "query": sql(n),
                     "queryState": "FINISHED"},
        "statistics": {"wallTime": 1.5, "physicalInputBytes": 1000 + n},
        "context": {"user": "x", "catalog": "rec", "schema": "lake"},
        "ioMetadata": {"inputs": []}, "createTime": at(n).isoformat(),
    }  # fmt: skip


def snowflake(n: int) -> Record:
    return {"QUERY_ID": ident(n), "QUERY_TEXT": sql(n), "DATABASE_NAME": "rec",
            "SCHEMA_NAME": "lake", "QUERY_TYPE": "SELECT", "SESSION_ID": 5,
            "EXECUTION_STATUS": "SUCCESS", "ERROR_CODE": None, "START_TIME": text(n, " +0000"),
            "TOTAL_ELAPSED_TIME": 1500, "BYTES_SCANNED": 1000 + n}  # fmt: skip


def databricks(n: int) -> Record:
    return {"statement_id": ident(n), "session_id": "s", "execution_status": "FINISHED",
            "statement_text": sql(n), "statement_type": "SELECT", "total_duration_ms": 1500,
            "start_time": at(n).isoformat(), "read_bytes": 1000 + n,
            "from_result_cache": False}  # fmt: skip


def athena(n: int) -> Record:
    return {"QueryExecutionId": ident(n), "Query": sql(n), "StatementType": "DML",
            "QueryExecutionContext": {"Database": "lake", "Catalog": "rec"},
            "Status": {"State": "SUCCEEDED", "SubmissionDateTime": at(n).timestamp()},
            "Statistics": {"EngineExecutionTimeInMillis": 1500,
                           "DataScannedInBytes": 1000 + n}}  # fmt: skip


def redshift(n: int) -> Record:
    return {"user_id": 1, "query_id": 1000 + n, "session_id": 5, "database_name": "rec",
            "query_type": "SELECT", "status": "success   ", "result_cache_hit": "false",
            "start_time": text(n), "elapsed_time": 1_500_000, "query_text": sql(n),
            "redshift_version": "1.0"}  # fmt: skip


def redshift_stl(n: int) -> Record:
    return {"userid": 1, "query": 1000 + n, "pid": 4, "database": "rec", "querytxt": sql(n),
            "starttime": text(n), "endtime": text(n)[:-5] + "1.500", "aborted": 0}  # fmt: skip


def bigquery(n: int) -> Record:
    return {"creation_time": text(n, " UTC"), "project_id": "rec", "job_id": f"bquxjob_{n:012d}",
            "statement_type": "SELECT", "state": "DONE", "query": sql(n), "error_result": None,
            "start_time": text(n, " UTC"), "end_time": text(n)[:-5] + "1.500 UTC",
            "total_bytes_processed": str(1000 + n), "cache_hit": "false"}  # fmt: skip


def openlineage(n: int) -> Record:
    return {"eventType": "COMPLETE", "eventTime": at(n).isoformat(), "run": {"runId": ident(n)},
            "job": {"namespace": "x", "name": "y", "facets": {"sql": {"query": sql(n)}}},
            }  # fmt: skip


def own(n: int) -> Record:
    return {"sql": sql(n), "timestamp": millis(n), "bytes": 1000 + n, "durationMs": 1500}


def trino_mysql(n: int) -> Record:
    return {"query_id": (at(n)).strftime("%Y%m%d_%H%M%S") + f"_{n:05d}_abcde", "query": sql(n),
            "query_state": "FINISHED", "catalog": "rec", "schema": "lake", "user": "x",
            "wall_time_millis": 1500, "physical_input_bytes": 1000 + n}  # fmt: skip


def lines(records: Sequence[Record]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in records).encode()


def array(records: Sequence[Record]) -> bytes:
    return json.dumps(list(records), indent=2).encode()


def answer(records: Sequence[Record]) -> bytes:
    return json.dumps({"QueryExecutions": list(records), "Unprocessed": []}, indent=4).encode()


def documents(records: Sequence[Record]) -> bytes:
    return "\n".join(json.dumps({"QueryExecution": one}, indent=4) for one in records).encode()


def table(records: Sequence[Record]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(records)
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def parquet(records: Sequence[Record]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(records)), out)
    return out.getvalue()


def kafka(records: Sequence[Record]) -> bytes:
    return lines([{"eventPayload": one, "eventMetadata": {}} for one in records])


KINDS: dict[str, tuple[Callable[[int], Record], Callable[[Sequence[Record]], bytes], bool]] = {
    "sql": (own, lines, True),
    "trino": (trino, lines, True),
    "trino, kafka": (trino, kafka, True),
    "trino-mysql": (trino_mysql, table, True),
    "snowflake": (snowflake, table, True),
    "snowflake, Parquet": (snowflake, parquet, True),
    "databricks": (databricks, array, True),
    "databricks, Parquet": (databricks, parquet, True),
    "athena": (athena, answer, True),
    "athena, documents": (athena, documents, True),
    "redshift": (redshift, table, False),
    "redshift-stl": (redshift_stl, table, False),
    "bigquery": (bigquery, array, True),
    "openlineage": (openlineage, lines, False),
}
"""By kind the record of a query, the container, and whether it has measured bytes."""


def imported(path: Path, sink: MemorySink, name: str | None = None) -> Tally:
    kind = kind_of(path, name, {})
    reader = SqlReader(kind.dialect, TABLES)
    return SqlLogImport(reader, sink, Session(("rec",)), kind).run(path)


def asked(sink: MemorySink) -> Counter[Any]:
    return Counter(
        (str(f.predicate), f.literals, f.projection, f.event_ms, f.weight) for f in sink.fragments
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_queries_in_any_history_are_the_same_workload(
    tmp_path: Path, name: str, packed: bool
) -> None:
    record, container, measured = KINDS[name]
    path = tmp_path / "history"
    body = container([record(n) for n in range(COUNT)])
    if packed and not body.startswith(b"PAR1"):
        body = gzip.compress(body)
    path.write_bytes(body)
    assert kind_of(path, None, {}).name == name.partition(",")[0]
    sink = MemorySink()
    tally = imported(path, sink)
    assert (tally.kept, dict(tally.skipped), tally.zoneless) == (COUNT, {}, 0)
    plain = MemorySink()
    (tmp_path / "plain").write_bytes(lines([own(n) for n in range(COUNT)]))
    imported(tmp_path / "plain", plain)
    assert asked(sink) == asked(plain)
    sizes = [item.recorded_bytes for item in sink.fragments]
    assert sizes == [1000 + n if measured else None for n in range(COUNT)]
    if name != "openlineage":
        assert {item.duration_ms for item in sink.fragments} == {1500}
    assert imported(path, sink).kept == 0


def test_every_format_is_tried() -> None:
    tried = {name.partition(",")[0] for name in KINDS} | {"duckdb", "iceberg-scans"}
    assert tried == {one.name for one in HISTORIES}


def test_the_events_of_a_real_trino_are_read_with_the_bytes_of_each_table() -> None:
    sink = MemorySink()
    tally = imported(REAL / "trino-476.jsonl", sink)
    assert tally.kept == 10 and tally.skipped[skip_reasons.FAILED] == 2
    created = tally.skipped[skip_reasons.NOT_ENDED]
    assert created == 14 and tally.skipped[skip_reasons.NOT_A_QUERY] == 2
    of_u = KNOWN["u"].uuid
    (joined,) = [f.event_ms for f in sink.fragments if f.table_uuid == of_u]
    measured = {f.table_uuid: f.recorded_bytes for f in sink.fragments if f.event_ms == joined}
    assert measured == {of_u: 1145, KNOWN["t"].uuid: 34910}
    prepared = [f for f in sink.fragments if f.literals == (42,)]
    assert len(prepared) == 1 and prepared[0].unbound is None
    assert all(item.duration_ms for item in sink.fragments)


def test_a_real_profile_of_duckdb_counts_once_wherever_it_is_copied(tmp_path: Path) -> None:
    sink = MemorySink()
    for number in range(2):
        path = REAL / f"duckdb-1.5.5-{number}.json"
        assert imported(path, sink).kept == 1
        copy = tmp_path / f"{number}.json"
        copy.write_bytes(path.read_bytes())
        again = imported(copy, sink)
        assert (again.kept, again.earlier) == (0, 1)
    assert [item.literals for item in sink.fragments if len(item.literals) == 1] == [(7,)]


def test_a_scan_report_gives_columns_without_values(tmp_path: Path) -> None:
    report = {
        "report-type": "scan-report", "table-name": "rec.lake.t", "snapshot-id": 1, "schema-id": 0,
        "filter": {"type": "and",
                   "left": {"type": "eq", "term": "id", "value": "(2-digit-int)"},
                   "right": {"type": "in", "term": "kind", "values": ["(hash-1)", "(hash-2)"]}},
        "projected-field-ids": [1, 4], "projected-field-names": ["id", "amount"],
        "metrics": {"total-file-size-in-bytes": {"unit": "bytes", "value": 512}},
    }  # fmt: skip
    (tmp_path / "r.jsonl").write_bytes(lines([report, {**report, "snapshot-id": 2}]))
    sink = MemorySink()
    assert imported(tmp_path / "r.jsonl", sink).kept == 2
    found = sink.fragments[0]
    assert found.unbound is not None and found.literals == ()
    assert found.recorded_bytes == 512 and set(found.projection) == {1, 3, 4}


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (trino, {"metadata": {"query": "SELECT 1", "queryState": "FAILED"}}, skip_reasons.FAILED),
        (snowflake, {"EXECUTION_STATUS": "FAIL"}, skip_reasons.FAILED),
        (snowflake, {"ERROR_CODE": "000904"}, skip_reasons.FAILED),
        (snowflake, {"QUERY_TEXT": "<redacted>"}, skip_reasons.REDACTED),
        (snowflake, {"QUERY_TEXT": "ALTER TABLE t ADD COLUMN x INT"}, skip_reasons.NOT_A_QUERY),
        (databricks, {"from_result_cache": True}, skip_reasons.CACHED),
        (databricks, {"statement_text": ""}, skip_reasons.NO_SQL),
        (redshift, {"result_cache_hit": "t"}, skip_reasons.CACHED),
        (redshift, {"status": "running"}, skip_reasons.NOT_ENDED),
        (redshift_stl, {"aborted": 1}, skip_reasons.FAILED),
        (bigquery, {"error_result": {"reason": "invalidQuery"}}, skip_reasons.FAILED),
        (athena, {"Status": {"State": "CANCELLED"}}, skip_reasons.FAILED),
    ],
)
def test_what_read_no_data_is_skipped_with_its_reason(
    tmp_path: Path, kind: Callable[[int], Record], change: Record, reason: str
) -> None:
    records = [kind(0), kind(1), {**kind(2), **change}]
    (tmp_path / "h.jsonl").write_bytes(lines(records))
    tally = imported(tmp_path / "h.jsonl", MemorySink())
    assert (tally.kept, dict(tally.skipped)) == (2, {reason: 1})


def test_records_of_another_system_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "mixed"
    path.write_bytes(lines([snowflake(0), trino(1), snowflake(2), own(3)]))
    tally = imported(path, MemorySink())
    assert (tally.kept, dict(tally.skipped)) == (2, {skip_reasons.OTHER_HISTORY: 2})
    assert dict(tally.others) == {"trino": 1, "sql": 1}


def test_a_log_of_two_systems_is_read_once_as_each(tmp_path: Path) -> None:
    """A first reading does not hide the records of the other system, nor counts any twice."""
    path = tmp_path / "mixed"
    path.write_bytes(lines([snowflake(0), trino(1), snowflake(2), trino(3), trino(4)]))
    sink = MemorySink()
    kept = [imported(path, sink, form).kept for form in (None, "trino", None, "trino", "snowflake")]
    assert kept == [2, 3, 0, 0, 0] and len(sink.fragments) == 5
    with path.open("ab") as file:
        file.write(lines([snowflake(5), trino(6)]))
    assert [imported(path, sink, form).kept for form in ("trino", None)] == [1, 1]


def test_a_log_of_two_systems_may_begin_with_a_record_of_neither(tmp_path: Path) -> None:
    path, sink = tmp_path / "mixed", MemorySink()
    path.write_bytes(lines([{"level": "info"}, snowflake(0), trino(1), snowflake(2), trino(3)]))
    kept = [imported(path, sink, form).kept for form in (None, "trino", None, "trino")]
    assert kept == [2, 2, 0, 0] and len(sink.fragments) == 4


def test_a_record_without_a_statement_is_of_no_other_system(tmp_path: Path) -> None:
    path = tmp_path / "log"
    empty = trino(1)
    empty["metadata"]["query"] = " "
    path.write_bytes(lines([trino(0), empty]))
    tally = imported(path, MemorySink())
    assert tally.kept == 1 and not tally.others


def test_a_log_that_is_read_as_another_format_names_its_own(tmp_path: Path) -> None:
    cases = ((trino, "trino", "snowflake"), (trino, "trino", "sql"), (own, "sql", "trino"))
    for made, right, wrong in cases:
        path = tmp_path / right
        path.write_bytes(lines([made(n) for n in range(9)]))
        why = why_unusable(path, right, imported(path, MemorySink(), wrong), wrong)
        assert why is not None and why.do is not None and why.do.endswith(f"--format {right}")


def test_every_field_of_a_map_is_named_where_people_look() -> None:
    page = (Path(__file__).parents[2] / "docs/concepts/query-histories.md").read_text()
    options = get_type_hints(workload_verb.import_, include_extras=True)["fields"]
    assert all(f"`{name}`" in page for name in MAPPED)
    assert all(re.search(rf"\b{name}\b", str(options.__metadata__[0].help)) for name in MAPPED)


def test_a_log_of_another_kind_is_read_by_named_fields(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_bytes(lines([{"a": {"text": sql(n)}, "ts": millis(n), "size": 9} for n in range(9)]))
    why = why_unusable(path, "own", imported(path, MemorySink()))
    assert why is not None and '"a.text"' in why.details[0]
    assert "--map sql=a.text,timestamp=ts" in (why.do or "")
    kind = mapped({"sql": "a.text", "timestamp": "ts", "bytes": "size"})
    sink = MemorySink()
    tally = SqlLogImport(SqlReader("trino", TABLES), sink, Session(("rec",)), kind).run(path)
    assert tally.kept == 9 and {item.recorded_bytes for item in sink.fragments} == {9}
    for bad, named in (({"sql": "a"}, '"timestamp"'), ({"timestamp": "a"}, '"sql"'),
                       ({"sql": "a", "timestamp": "b", "colour": "c"}, '"colour"')):  # fmt: skip
        with pytest.raises(UserError) as refused:
            mapped(bad)
        assert named in refused.value.what


def test_own_records_with_redacted_texts_are_called_that(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_bytes(lines([{**own(n), "sql": "<redacted>"} for n in range(9)]))
    tally = imported(path, MemorySink())
    assert dict(tally.skipped) == {skip_reasons.REDACTED: 9}
    why = why_unusable(path, "own", tally)
    assert why is not None and "redacted" in why.what


def test_queries_with_placeholders_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_bytes(lines([own(0), {**own(3), "sql": "SELECT id FROM rec.lake.t WHERE id = ?"}]))
    tally = imported(path, MemorySink())
    assert (tally.kept, tally.valueless) == (2, 1)


def test_access_history_alone_names_the_join(tmp_path: Path) -> None:
    path = tmp_path / "access"
    path.write_bytes(lines([{"QUERY_ID": "1", "QUERY_START_TIME": "x",
                             "BASE_OBJECTS_ACCESSED": "[]"}]))  # fmt: skip
    why = why_unusable(path, "access", imported(path, MemorySink()))
    assert why is not None and "JOIN query_history" in (why.do or "")


def test_a_column_that_is_twice_in_a_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_bytes(table([snowflake(0)]).replace(b"SESSION_ID", b"QUERY_TEXT"))
    with pytest.raises(UnusableLogError) as refused:
        imported(path, MemorySink())
    assert "QUERY_TEXT" in refused.value.what


def test_rows_without_the_headers_columns_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    body = table([snowflake(n) for n in range(3)]) + b"1,2,3\r\n"
    path.write_bytes(body)
    tally = imported(path, MemorySink())
    assert (tally.kept, dict(tally.skipped)) == (3, {skip_reasons.RAGGED: 1})


def _frames(body: bytes, codec: str) -> bytes:
    """Return frames of 10,000 bytes, as a log that is appended to has them."""
    parts = [body[at : at + 10_000] for at in range(0, len(body), 10_000)]
    return b"".join(pa.compress(part, codec=codec, asbytes=True) for part in parts)


@pytest.mark.parametrize("container", [lines, array, table])
@pytest.mark.parametrize(
    "pack", [gzip.compress, partial(_frames, codec="zstd"), partial(_frames, codec="lz4")]
)
def test_a_history_cut_in_its_packing_gives_what_can_be_read(
    tmp_path: Path,
    container: Callable[[Sequence[Record]], bytes],
    pack: Callable[[bytes], bytes],
) -> None:
    path = tmp_path / "cut"
    packed = pack(container([bigquery(n) for n in range(COUNT)]))
    path.write_bytes(packed[: len(packed) // 2])
    sink = MemorySink()
    tally = imported(path, sink)
    assert 0 < tally.kept < COUNT and tally.skipped[skip_reasons.DAMAGED] == 1
    path.write_bytes(packed)
    assert imported(path, sink).kept == COUNT - tally.kept


@pytest.mark.parametrize("container", [lines, array, answer, table])
def test_no_more_of_a_history_is_held_than_a_chunk_and_a_record(
    tmp_path: Path, container: Callable[[Sequence[Record]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of the file, less what was given out, at each record."""
    monkeypatch.setattr("reconciler.workload_log.importing.READ_AT_ONCE", 4096)
    monkeypatch.setattr(containers, "CHUNK", 4096)
    records = [bigquery(n) for n in range(20_000)]
    path = tmp_path / "large"
    path.write_bytes(container(records))
    given, most = 0, 0
    with path.open("rb") as file:
        for number, (line, _) in enumerate(containers.records_in(file, path, 1 << 20)):
            given += len(line or b"")
            most = max(most, file.tell() - round(path.stat().st_size * (number + 1) / 20_000))
    assert number == 19_999 and most < (2 << 20)


def test_a_source_of_a_catalog_takes_every_format_and_every_field_of_a_map() -> None:
    sources = spec_schema(CATALOG)["properties"]["workload"]["properties"]["sources"]
    of = sources["items"]["properties"]
    assert of["format"]["enum"] == list(NAMES)
    assert list(of["map"]["properties"]) == list(MAPPED)


DURATIONS = [
    ("PT1M30.5S", 90_500), ("PT2H3M1S", 7_381_000), ("P1DT2H", 93_600_000), ("P2D", 172_800_000),
    ("PT1.5S", 1500), ("PT1M", 60_000), ("PT1e-2S", 10), ("1.50m", 90_000), ("2.5h", 9_000_000),
    ("7 ms", 7), ("1.5s", 1500), ("8", 16), ("P", None), ("PT", None), ("PT.S", None),
    ("PT1E300S", None), ("PT1S1M", None), ("P1D2H", None), ("PT-3S", None), ("PT1M1.2.3S", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "millis"), DURATIONS)
def test_a_duration_is_read_as_systems_print_it(text: str, millis: int | None) -> None:
    assert amount(text, 2.0) == millis


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_fields_are_found_in_the_case_of_the_tool_that_exported_them(
    spelled: Callable[[str], str], tmp_path: Path
) -> None:
    one = {"query_id": "01b00001-0000-1111-0000-00000000001", "query_text": sql(1),
           "execution_status": "SUCCESS", "start_time": text(1), "bytes_scanned": 9}  # fmt: skip
    path = tmp_path / "log"
    path.write_bytes(lines([{spelled(name): value for name, value in one.items()}]))
    assert kind_of(path, None, {}).name == "snowflake"
    assert imported(path, MemorySink()).kept == 1


@pytest.mark.parametrize("factor", [1e-3, 1, 1_000, 1_000_000])
@pytest.mark.parametrize("shown", [int, str])
def test_numbers_of_time_are_read_in_the_unit_that_their_size_tells(
    factor: float, shown: Callable[[Any], Any], tmp_path: Path
) -> None:
    path, sink = tmp_path / "log", MemorySink()
    path.write_bytes(lines([{"sql": sql(1), "timestamp": shown(int(millis(1) * factor))}]))
    assert imported(path, sink).kept == 1
    assert {one.event_ms // 1000 for one in sink.fragments} == {millis(1) // 1000}


@pytest.mark.parametrize("factor", [1, 1_000, 1_000_000])
def test_a_time_is_the_same_millisecond_in_each_unit(factor: int) -> None:
    """Queries without an id are told apart by it: the same log in another unit counts once."""
    times = range(1_770_000_000_000, 1_770_000_001_000)
    assert [epoch_ms(float(time * factor)) for time in times] == list(times)
