"""Importing SQL logs: every line counted, none imported twice, no bad line stops it."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UnavailableError, UserError
from reconciler.queries.fragments import workload_of_fragments
from reconciler.workload_log import skip_reasons, sql_log
from reconciler.workload_log.importing import Tally
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import SchemaMap
from tests.said import Said
from tests.workload_log.oracle import known_tables
from tests.workload_log.sinks import MemorySink

TABLES = known_tables({"t": (("id", "long"), ("day", "date")), "u": (("id", "long"),)})
BY_NAME = SchemaMap({("cat", "db", name): table for name, table in TABLES.items()})
AT = "2026-03-01T10:00:00Z"


def entry(number: int, **extra: Any) -> str:
    return json.dumps({"sql": f"SELECT id FROM db.t WHERE id = {number}", "timestamp": AT, **extra})


def run(sink: MemorySink, path: Path, dialect: str = "trino") -> Tally:
    return SqlLogImport(SqlReader(dialect, BY_NAME), sink).run(path)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("".join(line + end for line in lines))
    return path


def test_each_line_becomes_a_fragment_with_its_measures(tmp_path: Path) -> None:
    sink = MemorySink()
    line = entry(5, durationMs=12, weight=3, recordedBytes=4096, user="someone")
    tally = run(sink, write(tmp_path / "q.jsonl", line))
    (fragment,) = sink.fragments
    assert (fragment.literals, fragment.weight, fragment.duration_ms) == ((5,), 3.0, 12)
    assert fragment.recorded_bytes == 4096 and fragment.engine == "trino"
    assert (tally.read, tally.kept, dict(tally.queries)) == (1, 1, {"t": 1})
    assert "someone" not in repr(fragment) and "SELECT" not in repr(fragment)


def test_a_catalog_that_does_not_answer_loses_no_query(tmp_path: Path) -> None:
    """The query that first names a table is read again once its schema can be loaded."""

    class Down:
        def resolve(self, parts: tuple[str, ...]) -> None:
            raise UnavailableError("the catalog does not answer")

    sink, path = MemorySink(), write(tmp_path / "q.jsonl", entry(1), entry(2))
    with pytest.raises(UnavailableError):
        SqlLogImport(SqlReader("trino", Down()), sink).run(path)
    assert (sink.fragments, sink.cursors) == ([], {})
    assert run(sink, path).kept == 2


def test_a_log_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(entry(1) + "\n", encoding="utf-16")
    with pytest.raises(UserError) as refused:
        run(MemorySink(), path)
    assert refused.value.do is not None and "iconv" in refused.value.do
    path.write_bytes(f"{entry(1)}\n".encode() + '{"sql": "K\xf6ln"}\n'.encode("latin-1"))
    tally = run(MemorySink(), path)
    assert (tally.kept, dict(tally.skipped)) == (1, {skip_reasons.NOT_UTF8: 1})


def test_recorded_bytes_of_a_join_belong_to_no_single_table(tmp_path: Path) -> None:
    sink = MemorySink()
    line = json.dumps(
        {"sql": "SELECT * FROM db.t JOIN db.u USING (id)", "timestamp": AT, "recordedBytes": 9}
    )
    run(sink, write(tmp_path / "q.jsonl", line))
    assert [f.recorded_bytes for f in sink.fragments] == [None, None]


MERGED = "ON t.id = u.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.mark.parametrize(
    ("sql", "merged"),
    [
        (f"MERGE INTO db.t AS t USING db.u AS u {MERGED}", {"t": [True], "u": [False]}),
        (f"MERGE INTO db.t AS t USING db.t AS u {MERGED}", {"t": [False, True]}),
        # sqlglot cannot parse this one
        (
            f"MERGE WITH SCHEMA EVOLUTION INTO db.t USING db.u {MERGED}",
            {"t": [True], "u": [False]},
        ),
        ("UPDATE db.t SET id = 1 WHERE id = 2", {"t": [False]}),
        ("SELECT * FROM db.t JOIN db.u USING (id)", {"t": [False], "u": [False]}),
    ],
)
def test_a_merge_marks_one_scan_of_the_table_that_it_writes(
    sql: str, merged: dict[str, list[bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_log, "mostly_unparsable", lambda queries, unparsable: False)
    sink = MemorySink()
    line = json.dumps({"sql": sql, "timestamp": AT})
    run(sink, write(tmp_path / "q.jsonl", line), dialect="spark")
    found: dict[str, list[bool]] = {}
    for fragment in sink.fragments:
        found.setdefault(fragment.table_uuid.removeprefix("uuid-"), []).append(fragment.merged)
    assert {table: sorted(marks) for table, marks in found.items()} == merged
    shapes = workload_of_fragments(sink.fragments).shapes
    counted = sum(float(batch.weight.sum()) * batch.merged for batch in shapes)
    assert counted == sum(map(sum, merged.values()))


def test_epoch_milliseconds_and_iso_times_are_the_same_instant(tmp_path: Path) -> None:
    sink = MemorySink()
    stamps = [1772359200000, AT, "2026-03-01T11:00:00+01:00", "2026-03-01 10:00:00"]
    lines = [json.dumps({"sql": "SELECT * FROM db.t", "timestamp": s}) for s in stamps]
    run(sink, write(tmp_path / "q.jsonl", *lines))
    assert {f.event_ms for f in sink.fragments} == {1772359200000}
    assert len(sink.fragments) == 4


BAD = {
    "not valid JSON": ["{", "\x00\x00", '{"sql": "x"', "[" * 100_000],
    "not a JSON object": ["[1]", "42", '"text"', "null"],
    "no SQL text": ['{"timestamp": 1}', '{"sql": 7, "timestamp": 1}', '{"sql": " "}'],
    "no usable timestamp": [
        '{"sql": "SELECT 1"}',
        '{"sql": "SELECT 1", "timestamp": "yesterday"}',
        '{"sql": "SELECT 1", "timestamp": true}',
        '{"sql": "SELECT 1", "timestamp": 1e999}',
        '{"sql": "SELECT 1", "timestamp": {"a": 1}}',
    ],
    "absurd timestamp": [
        '{"sql": "SELECT 1", "timestamp": 0}',
        '{"sql": "SELECT 1", "timestamp": "9998-01-01T00:00:00Z"}',
        '{"sql": "SELECT 1", "timestamp": 99999999999999999999}',
    ],
    "weight is not a positive number": [
        entry(1, weight=0), entry(1, weight=-1), entry(1, weight="much"), entry(1, weight=True),
    ],
    "our own job": [
        entry(1, application="layoutctl 0.1"),
        json.dumps({"sql": "/* layoutctl noop */ SELECT id FROM db.t", "timestamp": AT}),
    ],
    "not a query": [
        json.dumps({"sql": s, "timestamp": AT})
        for s in ("SHOW TABLES", "SET a = b", "CALL system.run()", "DROP TABLE db.t", ";")
    ],
    skip_reasons.UNKNOWN_TABLES: [
        json.dumps({"sql": s, "timestamp": AT})
        for s in ("SELECT 1", "SELECT * FROM elsewhere.x", "SELECT * FROM elsewhere.files")
    ],
    "reads an older snapshot or a metadata table": [
        json.dumps({"sql": 'SELECT * FROM db."t$files"', "timestamp": AT})
    ],
    "not parsable": [json.dumps({"sql": "SELEC * FRM nowhere (((", "timestamp": AT})],
}  # fmt: skip


def test_a_bad_line_is_counted_by_reason_and_stops_nothing(tmp_path: Path) -> None:
    sink = MemorySink()
    path = tmp_path / "q.jsonl"
    bad = [line for lines in BAD.values() for line in lines]
    raw = "\n".join([entry(1), *bad, "", "   ", entry(2)]) + "\n"
    path.write_bytes(raw.encode() + b"\xff\xfe\x80\n" + entry(3).encode() + b"\n")
    tally = run(sink, path)
    expected = {reason: len(lines) for reason, lines in BAD.items()}
    expected[skip_reasons.NOT_UTF8] = 1
    assert dict(tally.skipped) == expected
    assert [f.literals for f in sink.fragments] == [(1,), (2,), (3,)]
    assert tally.read == tally.kept + sum(tally.skipped.values())
    assert {reason: n for (_, reason), n in sink.skips.items()} == expected


def test_a_line_of_many_megabytes_is_skipped_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.workload_log.log_lines.MAX_LINE", 1 << 16)
    sink = MemorySink()
    long = json.dumps({"sql": "SELECT '" + "x" * (1 << 20) + "'", "timestamp": AT})
    tally = run(sink, write(tmp_path / "q.jsonl", entry(1), long, entry(2)))
    assert dict(tally.skipped) == {skip_reasons.TOO_LONG: 1}
    assert len(sink.fragments) == 2


@pytest.mark.parametrize("before", [0, 1])
def test_a_last_line_of_many_megabytes_without_an_end_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr("reconciler.workload_log.log_lines.MAX_LINE", 1000)
    sink, path = MemorySink(), tmp_path / "q.jsonl"
    first = "".join(entry(n) + "\n" for n in range(before))
    path.write_text(first + "x" * 2000)
    tally = run(sink, path)
    assert dict(tally.skipped) == {skip_reasons.TOO_LONG: 1}
    assert (tally.read, tally.kept) == (before + 1, before)
    path.write_text(first + "x" * 2000 + "\n" + entry(9) + "\n")
    again = run(sink, path)
    assert dict(again.skipped) == {skip_reasons.TOO_LONG: 1}
    assert [item.literals for item in sink.fragments] == [*([(0,)] * before), (9,)]


def test_a_huge_query_that_names_a_table_counts_as_a_full_scan(tmp_path: Path) -> None:
    sink = MemorySink()
    numbers = ",".join(str(n) for n in range(300_000))
    line = json.dumps({"sql": f"SELECT * FROM db.t WHERE id IN ({numbers})", "timestamp": AT})
    tally = run(sink, write(tmp_path / "q.jsonl", line))
    assert [f.full_scan for f in sink.fragments] == [True]
    assert sum(tally.full_scans.values()) == 1


def test_a_query_that_cannot_be_parsed_is_a_full_scan_of_the_tables_it_names(
    tmp_path: Path,
) -> None:
    sink = MemorySink()
    line = json.dumps({"sql": "SELECT ((( FROM db.t, cat.db.u WHERE", "timestamp": AT})
    tally = run(sink, write(tmp_path / "q.jsonl", entry(1), line))
    assert [(f.table_uuid, f.full_scan) for f in sink.fragments] == [
        ("uuid-t", False),
        ("uuid-t", True),
        ("uuid-u", True),
    ]
    assert tally.kept == 2 and dict(tally.full_scans) == {"not parsable": 2}
    assert sink.skips["uuid-t", "not parsable"] == 1
    assert list(tally.examples) == ["not parsable"]
    assert "db.t" not in tally.examples["not parsable"]


def test_importing_again_adds_nothing(tmp_path: Path) -> None:
    sink = MemorySink()
    path = write(tmp_path / "q.jsonl", *(entry(n) for n in range(40)))
    run(sink, path)
    before = list(sink.fragments)
    again = run(sink, path)
    assert (again.read, again.earlier) == (0, 40)
    assert sink.fragments == before


def test_an_appended_log_continues(tmp_path: Path) -> None:
    sink = MemorySink()
    path = write(tmp_path / "q.jsonl", entry(1), entry(2))
    run(sink, path)
    with path.open("a") as file:
        file.write(entry(3) + "\n")
    tally = run(sink, path)
    assert (tally.read, tally.earlier) == (1, 2)
    assert len({f.source for f in sink.fragments}) == 1
    assert [f.literals for f in sink.fragments] == [(1,), (2,), (3,)]


def test_a_line_still_being_written_is_read_when_it_has_ended(tmp_path: Path) -> None:
    sink = MemorySink()
    path = tmp_path / "q.jsonl"
    path.write_text(entry(1) + "\n" + entry(2)[:20])
    first = run(sink, path)
    assert (first.kept, sum(first.skipped.values())) == (1, 1) and not sink.skips
    path.write_text(entry(1) + "\n" + entry(2) + "\n")
    assert run(sink, path).kept == 1
    assert [f.literals for f in sink.fragments] == [(1,), (2,)]


def test_a_last_line_without_a_newline_counts_once(tmp_path: Path) -> None:
    sink = MemorySink()
    path = tmp_path / "q.jsonl"
    path.write_text(entry(1) + "\n" + entry(2))
    assert run(sink, path).kept == 2
    path.write_text(entry(1) + "\n" + entry(2) + "\n" + entry(3) + "\n")
    assert run(sink, path).kept == 1


def test_rotation_keeps_the_old_file_known_and_reads_the_new_one(tmp_path: Path) -> None:
    sink = MemorySink()
    path = write(tmp_path / "q.jsonl", *(entry(n) for n in range(5)))
    run(sink, path)
    path.rename(tmp_path / "q.jsonl.1")
    with gzip.open(tmp_path / "q.jsonl.2.gz", "wb") as file:
        file.write((tmp_path / "q.jsonl.1").read_bytes())
    write(path, *(entry(n) for n in range(10, 13)))
    assert run(sink, path).kept == 3
    assert run(sink, tmp_path / "q.jsonl.1").read == 0
    assert run(sink, tmp_path / "q.jsonl.2.gz").read == 0
    assert len(sink.fragments) == 8


def test_a_truncated_log_doubles_nothing_and_new_lines_are_read(tmp_path: Path) -> None:
    sink = MemorySink()
    lines = [entry(n) for n in range(10)]
    path = write(tmp_path / "q.jsonl", *lines)
    run(sink, path)
    write(path, *lines[:4])
    assert run(sink, path).read == 0
    write(path, *lines[:4], entry(77), entry(78))
    assert run(sink, path).kept == 2
    assert run(sink, write(path, *lines)).read == 0
    assert run(sink, write(path, *lines[:4], entry(77), entry(78), entry(79))).kept == 1
    assert sorted(f.literals[0] for f in sink.fragments) == [*range(10), 77, 78, 79]


def test_an_import_that_died_between_batch_and_cursor_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_log, "BATCH", 4)
    sink = MemorySink()
    path = write(tmp_path / "q.jsonl", *(entry(n) for n in range(20)))

    def refuse(source: str, value: str) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "set_cursor", refuse)
        with pytest.raises(OSError, match="killed"):
            run(sink, path)
    assert 0 < len(sink.fragments) < 20
    run(sink, path)
    assert [f.literals[0] for f in sink.fragments] == list(range(20))
    assert sink.commits >= 5


def test_a_large_log_that_grows_is_never_read_twice(tmp_path: Path) -> None:
    """More lines than marks: the place reached is always remembered exactly."""
    sink = MemorySink()
    path = tmp_path / "q.jsonl"
    for size in (700, 1500, 1501, 3000):
        write(path, *(entry(n) for n in range(size)))
        run(sink, path)
        assert len(sink.fragments) == size
    (cursor,) = sink.cursors.values()
    assert len(cursor) < 40_000


def test_a_damaged_compressed_log_gives_what_can_be_read(tmp_path: Path) -> None:
    sink = MemorySink()
    body = gzip.compress("".join(entry(n) + "\n" for n in range(5000)).encode())
    path = tmp_path / "q.jsonl.gz"
    path.write_bytes(body[: len(body) // 2])
    tally = run(sink, path)
    assert 0 < tally.kept < 5000
    assert tally.skipped[skip_reasons.DAMAGED] == 1


def test_zstd_logs_are_read(tmp_path: Path) -> None:
    import pyarrow as pa

    sink = MemorySink()
    path = tmp_path / "q.jsonl.zst"
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write((entry(1) + "\n" + entry(2) + "\n").encode())
    assert run(sink, path).kept == 2


def lz4_blocks(body: bytes, size: int) -> bytes:
    """As lz4-java's LZ4BlockOutputStream writes them, checksums left out."""
    import pyarrow as pa

    packed = b""
    for start in range(0, len(body), size):
        block = body[start : start + size]
        small = pa.Codec("lz4_raw").compress(block, asbytes=True)
        raw = start == 0
        content = block if raw else small
        token = 0x16 if raw else 0x26
        packed += struct.pack("<8sBiii", b"LZ4Block", token, len(content), len(block), 0) + content
    return packed + struct.pack("<8sBiii", b"LZ4Block", 0x16, 0, 0, 0)


def test_a_log_is_unpacked_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    import pyarrow as pa

    body = "".join(entry(n) + "\n" for n in range(300)).encode()
    frames = pa.BufferOutputStream()
    with pa.CompressedOutputStream(frames, "lz4") as stream:
        stream.write(body)
    packings = {"q.log.gz.1": gzip.compress(body), "q.jsonl": lz4_blocks(body, 4096),
                "q.inprogress": frames.getvalue().to_pybytes(), "plain.gz": body}  # fmt: skip
    for name, packed in packings.items():
        (tmp_path / name).write_bytes(packed)
        assert run(MemorySink(), tmp_path / name).kept == 300, name
    (tmp_path / "cut").write_bytes(packings["q.jsonl"][:-60])
    tally = run(MemorySink(), tmp_path / "cut")
    assert 200 < tally.kept < 300 and tally.skipped[skip_reasons.DAMAGED] == 1


def test_a_log_of_which_nothing_can_be_read_says_so(tmp_path: Path) -> None:
    for body, reason in ((entry(1).encode()[:-5], skip_reasons.INCOMPLETE),
                         (gzip.compress(b"x" * 99)[:14], skip_reasons.DAMAGED)):  # fmt: skip
        (tmp_path / "q.jsonl").write_bytes(body)
        assert dict(run(MemorySink(), tmp_path / "q.jsonl").skipped) == {reason: 1}


def test_times_as_engines_print_them_and_absent_weights_are_read(tmp_path: Path) -> None:
    sink = MemorySink()
    times = ["2026-03-01 10:00:00 UTC", "2026-03-01 10:00:00.000 UTC", "1772359200000.5",
             "2026-03-01 11:00:00 Europe/Berlin", 1772359200000.5]  # fmt: skip
    run(sink, write(tmp_path / "q.jsonl", *(entry(1, timestamp=t, weight=None) for t in times)))
    assert {(f.event_ms, f.weight) for f in sink.fragments} == {(1_772_359_200_000, 1.0)}
    assert len(sink.fragments) == len(times)


def test_a_missing_file_is_a_users_error(tmp_path: Path, said: Said) -> None:
    with pytest.raises(UserError) as refused:
        run(MemorySink(), tmp_path / "none.jsonl")
    said(refused.value)


def test_session_catalog_schema_and_zone_complete_names_and_times(tmp_path: Path) -> None:
    sink = MemorySink()
    night = "2026-03-01T23:30:00Z"
    lines = [
        json.dumps({"sql": "SELECT id FROM t WHERE day = current_date", "timestamp": night,
                    "catalog": "cat", "schema": "db", "timezone": zone})
        for zone in ("UTC", "Asia/Tokyo", "No/Where")
    ]  # fmt: skip
    lines.append(json.dumps({"sql": "SELECT id FROM t", "timestamp": night, "schema": "other"}))
    tally = run(sink, write(tmp_path / "q.jsonl", *lines))
    days = [f.literals[0] for f in sink.fragments]
    assert isinstance(days[0], int)
    assert days == [days[0], days[0] + 1, days[0]]
    assert [f.moving for f in sink.fragments] == [(0,), (1,), (0,)]
    assert dict(tally.skipped) == {skip_reasons.UNKNOWN_TABLES: 1}


def statement(sql: str, **extra: Any) -> str:
    return json.dumps({"sql": sql, "timestamp": AT, **extra})


@pytest.mark.parametrize(
    ("dialect", "prepare", "execute"),
    [("trino", "PREPARE p FROM SELECT id FROM db.t WHERE id = ? AND day > ?",
      "EXECUTE p USING 7, DATE '2026-01-01'"),
     ("trino", "prepare \"P\" from select id from db.t where id = ? and day > ?;",
      "/* by jdbc */ execute p using 3 + 4, DATE '2026-01-01';"),
     ("postgres", "PREPARE p (date, numeric(3, 1)) AS"
      " SELECT id FROM db.t WHERE id = $2 AND day > $1", "EXECUTE p('2026-01-01', 7)"),
     ("duckdb", "PREPARE p AS SELECT id FROM db.t WHERE id = $1 AND id = $1 AND day > $2",
      "EXECUTE p(7, DATE '2026-01-01')"),
     ("mysql", "PREPARE p FROM 'SELECT id FROM db.t WHERE id = ? AND day > ''2026-01-01'''",
      "EXECUTE p USING 7")],
)  # fmt: skip
def test_an_executed_statement_is_the_last_one_prepared_by_its_name(
    tmp_path: Path, dialect: str, prepare: str, execute: str
) -> None:
    sink = MemorySink()
    lines = [statement("PREPARE p AS SELECT id FROM db.u"), statement(prepare),
             statement(execute, weight=4)]  # fmt: skip
    tally = run(sink, write(tmp_path / "q.jsonl", *lines), dialect)
    (fragment,) = sink.fragments
    assert fragment.table_uuid == "uuid-t" and fragment.weight == 4.0
    assert fragment.literals == (7, 20454) and fragment.unbound is None
    assert (tally.read, tally.kept, dict(tally.skipped)) == (3, 1, {skip_reasons.PREPARES: 2})


def test_values_that_do_not_fit_leave_the_statement_with_its_shape(tmp_path: Path) -> None:
    sink = MemorySink()
    lines = [statement("PREPARE p FROM SELECT id FROM db.t WHERE id = ? AND day > '2026-01-01'"),
             statement("EXECUTE p USING 1, 2"), statement("EXECUTE p")]  # fmt: skip
    run(sink, write(tmp_path / "q.jsonl", *lines))
    assert [(f.literals, f.unbound is None) for f in sink.fragments] == [((20454,), False)] * 2


def test_prepared_names_belong_to_their_session(tmp_path: Path) -> None:
    sink = MemorySink()
    one, other = "SELECT id FROM db.t WHERE id = ?", "SELECT id FROM db.u WHERE id = ?"
    lines = [
        statement(f"PREPARE p FROM {one}", user="a"),
        statement(f"PREPARE p FROM {other}", user="b"),
        statement("EXECUTE p USING 1", user="a"),
        statement("EXECUTE p USING 2", user="b"),
        statement("EXECUTE p USING 3"),
        statement("EXECUTE p USING 4", user="c"),
        statement("DEALLOCATE PREPARE p", user="a"),
        statement("EXECUTE p USING 5", user="a"),
    ]
    tally = run(sink, write(tmp_path / "q.jsonl", *lines))
    assert [(f.table_uuid, f.literals) for f in sink.fragments] == [
        ("uuid-t", (1,)), ("uuid-u", (2,)), ("uuid-u", (3,))]  # fmt: skip
    assert tally.skipped[skip_reasons.UNPREPARED] == 2 and tally.lines[skip_reasons.UNPREPARED] == [
        6,
        8,
    ]


def test_a_statement_prepared_before_the_last_import_is_known(tmp_path: Path) -> None:
    sink, path = MemorySink(), tmp_path / "q.jsonl"
    lines = [statement("PREPARE p FROM SELECT id FROM db.t WHERE id = ?"),
             statement("EXECUTE p USING 1"), statement("EXECUTE p USING 2")]  # fmt: skip
    run(sink, write(path, *lines[:2]))
    tally = run(sink, write(path, *lines))
    assert [f.literals for f in sink.fragments] == [(1,), (2,)]
    assert (tally.earlier, tally.read, tally.kept) == (2, 1, 1)
    whole = MemorySink()
    run(whole, path)
    assert whole.stored == sink.stored
    assert run(sink, path).read == 0
