"""What `layoutctl workload import` does: finds the logs, reads each, and reports what was kept."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from reconciler.api.version import API_VERSION

if TYPE_CHECKING:
    import datetime as dt

    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.errors import UserError
    from reconciler.workload_log.importing import FragmentSink, Tally
    from reconciler.workload_log.packing import Log
    from reconciler.workload_log.tables import TableSchemas

MOST_REFUSED = 10
"""Logs that an error names."""

SPARK_EVENTS = "spark-events"
AUTO = "auto"
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the logs of one import are read."""

    form: str | None
    """Format of the logs, None to recognise that of each."""
    fields: Mapping[str, str]
    """Names of fields that are given with --map."""
    dialect: str | None
    """Dialect of the statements, None for that of the log's system."""
    levels: tuple[str, ...]
    """Catalog and schema of names without them."""
    zone: dt.tzinfo
    """Time zone of times without one."""


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """A table of which the import kept queries."""

    uuid: str
    """UUID of the table."""
    levels: tuple[str, ...]
    """Catalog, namespace levels and name."""


def checked_format(name: str) -> str | None:
    """Return a format's name, None for auto. Raises UserError with the valid names."""
    from reconciler.errors import UserError
    from reconciler.workload_log.histories import NAMES

    if name == AUTO:
        return None
    if name not in (*NAMES, SPARK_EVENTS):
        raise UserError(
            f'"{name}" is not a format', do=f"one of {', '.join((AUTO, *NAMES, SPARK_EVENTS))}"
        )
    return name


def checked_fields(text: str | None, form: str | None) -> dict[str, str]:
    """Return the fields of --map. Raises UserError."""
    from reconciler.errors import UserError
    from reconciler.workload_log.histories import mapped, named

    if not text:
        return {}
    if form == SPARK_EVENTS:
        raise UserError("a Spark event log has no fields to map", do="leave out --map")
    pairs = [part.partition("=") for part in text.split(",")]
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    mapped(fields, None if form is None else named(form))
    return fields


@contextmanager
def logs_of(places: Sequence[str], config: CatalogConfig) -> Iterator[list[Log]]:
    """Provide the logs at files, directories, prefixes of an object store or standard input."""
    with tempfile.TemporaryDirectory(prefix="layoutctl-") as scratch:
        found: list[Log] = []
        for place in places:
            if place == STDIN:
                found.append(_spooled(sys.stdin.buffer, Path(scratch)))
            elif "://" in place:
                found += _remote(place, config)
            else:
                found += _local(Path(place))
        yield found


def _spooled(stream: BinaryIO, directory: Path) -> Log:
    """Return standard input as a log. It is copied to disk, because a log is opened several
    times."""
    import shutil

    from reconciler.workload_log.packing import StreamedLog

    path = directory / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)

    def opened() -> Any:
        return path.open("rb")

    return StreamedLog("standard input", path.stat().st_size, opened, opened, None)


def _remote(place: str, config: CatalogConfig) -> list[Log]:
    from reconciler.errors import UserError
    from reconciler.workload_log.stores import remote_log, stored_logs

    found: list[Log] = [remote_log(config, place, one) for one in stored_logs(config, place)]
    if not found:
        raise UserError(f"{place} contains no log", do="check the prefix")
    return found


def _local(path: Path) -> Sequence[Log]:
    from reconciler.errors import UserError
    from reconciler.workload_log.event_log_files import event_logs

    if not path.exists():
        raise UserError(f"{path} does not exist", do="check the path of the log")
    inside = event_logs(path) if path.is_dir() else [path]
    if not inside:
        raise UserError(f"{path} contains no log", do="name a log, or a directory with logs in it")
    return inside


@dataclass(frozen=True, slots=True)
class Imported:
    """One log that was read."""

    name: str
    """Its path, for people."""
    form: str
    """Name of its format."""
    tally: Tally
    """The counts."""


def import_all(
    logs: Sequence[Log], read: Callable[[Log], tuple[Tally, str]]
) -> tuple[list[Imported], list[UserError]]:
    """Import every log; return the counts, and why logs could not be used."""
    from reconciler.errors import UserError
    from reconciler.workload_log.unusable import why_unusable

    found: list[Imported] = []
    refused: list[UserError] = []
    for log in logs:
        try:
            tally, form = read(log)
        except UserError as error:
            refused.append(error)
            continue
        rolling = isinstance(log, Path) and log.is_dir()  # a Spark event log, which is no file
        why = None if rolling else why_unusable(log, str(log), tally, form)
        if why is None:
            found.append(Imported(str(log), form, tally))
        else:
            refused.append(why)
    return found, refused


def import_one(
    log: Log, how: Reading, tables: TableSchemas, sink: FragmentSink
) -> tuple[Tally, str]:
    """Import one log; return the counts, and the name of the format that it was read as."""
    from reconciler.workload_log.dialects import check_dialect
    from reconciler.workload_log.event_log_files import is_event_log
    from reconciler.workload_log.log_lines import kind_of
    from reconciler.workload_log.spark_events import SparkEventImport
    from reconciler.workload_log.sql import Session, SqlReader
    from reconciler.workload_log.sql_log import SqlLogImport

    auto = how.form is None and not how.fields
    if how.form == SPARK_EVENTS or (auto and is_event_log(log)):
        return SparkEventImport(tables, sink, how.zone).run(log), SPARK_EVENTS
    kind = kind_of(log, how.form, how.fields)
    reader = SqlReader(check_dialect(how.dialect or kind.dialect), tables)
    session = Session(how.levels, how.zone)
    return SqlLogImport(reader, sink, session, kind).run(log), kind.name


def nothing_kept(logs: Sequence[Imported], dialect: str | None) -> UserError | None:
    """Return why an import of readable logs kept nothing; None if it kept something, or if all was
    imported before."""
    from reconciler.errors import UserError

    used = (one.tally.kept or one.tally.earlier or one.tally.repeated for one in logs)
    if not logs or any(used):
        return None
    skipped: Counter[str] = Counter()
    for one in logs:
        skipped.update(one.tally.skipped)
    if not skipped:
        return UserError(
            f"{logs[0].name} has no SQL execution", do="check the path and --format of the log"
        )
    reasons = (f"{reason}: {count:,}" for reason, count in skipped.most_common(5))
    return UserError(
        "no query of a table in this catalog was found, and nothing was recorded",
        details=tuple(reasons),
        do=_advice(skipped, dialect),
    )


def _advice(skipped: Counter[str], dialect: str | None) -> str:
    """Return what to do about the most frequent of the reasons that the user can remove."""
    from reconciler.workload_log import skip_reasons

    known = {
        skip_reasons.UNKNOWN_TABLES: "check --catalog, --log-catalog and --schema",
        skip_reasons.UNPARSABLE: "check --dialect" + (f", which is {dialect}" if dialect else ""),
        skip_reasons.ABSURD_TIMESTAMP: "name the field of the query's time: --map timestamp=FIELD; "
        "a time is between 1990 and tomorrow",
        skip_reasons.BAD_WEIGHT: "leave the weight out, or give the number of executions",
        skip_reasons.UNPREPARED: "import the log that has the PREPARE statements, too",
    }
    frequent = (known[reason] for reason, _ in skipped.most_common() if reason in known)
    return next(frequent, "import a log with SELECT statements on tables of this catalog")


def refusal(refused: Sequence[UserError], nothing: UserError | None) -> UserError | None:
    """Return one error for all logs that could not be used."""
    from reconciler.errors import UserError

    errors = [*refused, *([nothing] if nothing else [])]
    if len(errors) < 2:
        return errors[0] if errors else None
    details = [f"{e.what}: {e.do}" for e in errors[:MOST_REFUSED]]
    more = len(errors) - MOST_REFUSED
    return UserError(
        f"{len(errors)} logs could not be used",
        details=(*details, *([f"and {more} more"] if more > 0 else [])),
        do="correct these, and import them again: what was recorded is not counted again",
    )


def queries_of(logs: Sequence[Imported]) -> Counter[str]:
    """Return the number of kept queries in all logs together, by table name."""
    total: Counter[str] = Counter()
    for one in logs:
        total.update(one.tally.queries)
    return total


def import_document(
    logs: Sequence[Imported],
    touched: Sequence[tuple[TouchedTable, int]],
    timezone: str,
) -> dict[str, Any]:
    """Return what the import prints. touched: each table with the number of its kept queries.
    timezone: name of the zone in which times without one were read."""
    from reconciler.format import utc
    from reconciler.table.observation import quoted_name

    tallies = [one.tally for one in logs]
    skipped: Counter[str] = Counter()
    full_scans: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    weights: dict[str, float] = {}
    for tally in tallies:
        skipped.update(tally.skipped)
        full_scans.update(tally.full_scans)
        unknown.update(tally.unknown)
        for name, weight in tally.weights.items():
            weights[name] = weights.get(name, 0.0) + weight
    until = [tally.until_ms for tally in tallies if tally.until_ms is not None]
    since = [tally.since_ms for tally in tallies if tally.since_ms is not None]
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadImport",
        "files": [_file_document(one) for one in logs],
        "tables": [
            {"table": name, "queries": n, "weight": round(weights.get(name, float(n)), 3)}
            for name, n in ((quoted_name(t.levels), n) for t, n in touched)
        ],
        "skipped": dict(skipped.most_common()),
        "fullScans": dict(full_scans.most_common()),
        "examples": _examples(logs),
        "withoutValues": sum(tally.valueless for tally in tallies),
        "timesWithoutZone": {"count": sum(t.zoneless for t in tallies), "readAs": timezone},
        "unknownColumns": [
            {"table": table, "column": column, "conditions": count}
            for (table, column), count in unknown.most_common()
        ],
        "since": utc(min(since)) if since else None,
        "until": utc(max(until)) if until else None,
    }  # fmt: skip


def _file_document(log: Imported) -> dict[str, Any]:
    from reconciler.workload_log import skip_reasons

    tally = log.tally
    return {
        "path": log.name, "format": log.form, "read": tally.read, "kept": tally.kept,
        "skipped": sum(tally.skipped.values()),
        "earlier": tally.earlier, "repeated": tally.repeated, "fragments": tally.fragments,
        "damaged": tally.skipped[skip_reasons.DAMAGED] > 0,
        "otherFormats": dict(sorted(tally.others.items())),
        "skippedLines": {reason: tally.lines[reason] for reason in sorted(tally.lines)},
    }  # fmt: skip


def _examples(logs: Sequence[Imported]) -> dict[str, str]:
    """Return by reason one query that could not be read, by its place."""
    found: dict[str, str] = {}
    for one in logs:
        for reason, place in one.tally.examples.items():
            found.setdefault(reason, f"{one.name}: {place}" if len(logs) > 1 else place)
    return found
