"""Field maps: which fields of each system's query history hold what the reader of SQL logs needs.

Declarative: a history of another system is one more entry of `HISTORIES`. The order is that of
recognition: the first map all of whose `marks` a record has is that of its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.errors import UserError

Paths = tuple[str, ...]
"""Names of fields, with dots into objects; the first that has a value counts."""


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Where one kind of query history keeps the values of a query."""

    name: str
    """Name of the format, for --format and `format` of a source."""
    source: str
    """Where the fields are documented, or the system whose output they were taken from."""
    dialect: str
    """Dialect of the statements, where none is given."""
    marks: tuple[Paths, ...]
    """Fields that a record of this kind has: of each tuple at least one."""
    sql: Paths
    """Text of the statement."""
    time: Paths
    """When it began: a text, or a number of seconds, milliseconds, microseconds or nanoseconds."""
    query_id: Paths = ()
    """The engine's id of the execution."""
    prepared: Paths = ()
    """Text of the prepared statement that `sql` executes."""
    catalog: Paths = ()
    """Catalog of names without one."""
    schema: Paths = ()
    """Schema of names without one."""
    session: Paths = ()
    """Session or user: whose prepared statements the query may execute."""
    agent: Paths = ()
    """The client, by which our own queries are left out."""
    engine: Paths = ()
    """The engine, where records of several are in one history."""
    duration: tuple[tuple[str, float], ...] = ()
    """Fields with the measured duration, and the milliseconds of their unit."""
    began: Paths = ()
    """When it began to run, where no duration is measured."""
    until: Paths = ()
    """When it ended, where no duration is measured."""
    size: Paths = ()
    """Bytes that the query read from storage, as measured."""
    inputs: Paths = ()
    """List of the tables read, with `schema`, `table` and `physicalInputBytes` of each."""
    plan: Paths = ()
    """Text of the plan that ran, with what joins asked of scans (`join_ranges`)."""
    state: Paths = ()
    """How the query ended."""
    ended: frozenset[str] = frozenset()
    """States of queries that ended well, in upper case; those of other states are skipped."""
    failed: Paths = ()
    """Fields that have a value, and no zero, only if the query failed."""
    cached: Paths = ()
    """Whether the answer came from a cache of results, so that no data was read."""
    utc: bool = False
    """Whether times without a zone are in UTC by the system's documentation."""
    weight: Paths = ()
    """Number of executions that the record counts for."""
    zone: Paths = ()
    """Time zone of the session."""
    file_time: bool = False
    """Whether records may have no time, so that the file's time of change counts, and no id, so
    that the record itself identifies the query."""
    scan_report: bool = False
    """Whether the record is a scan report of Iceberg, without SQL and literals."""


OWN = FieldMap(
    name="sql",
    source="docs/tour.md",
    dialect="spark",
    marks=(("sql",), ("timestamp",)),
    sql=("sql",),
    time=("timestamp",),
)
"""The project's own format, whose fields `sql_log` reads as they are."""

_DONE = frozenset({"FINISHED", "SUCCESS", "SUCCEEDED", "DONE", "COMPLETE"})
"""What the systems call a query that ended well."""

TRINO = FieldMap(
    name="trino",
    source="io.trino.spi.eventlistener.QueryCompletedEvent, as JSON: trino.io, HTTP, Kafka and "
    "OpenLineage event listeners",
    dialect="trino",
    marks=(("metadata.query", "eventPayload.metadata.query"),
           ("createTime", "eventPayload.createTime")),
    sql=("metadata.query", "eventPayload.metadata.query"),
    prepared=("metadata.preparedQuery", "eventPayload.metadata.preparedQuery"),
    time=("createTime", "eventPayload.createTime"),
    query_id=("metadata.queryId", "eventPayload.metadata.queryId"),
    catalog=("context.catalog", "eventPayload.context.catalog"),
    schema=("context.schema", "eventPayload.context.schema"),
    session=("context.user", "eventPayload.context.user"),
    agent=("context.source", "eventPayload.context.source"),
    zone=("context.timezone", "eventPayload.context.timezone"),
    duration=(("statistics.wallTime", 1000.0), ("eventPayload.statistics.wallTime", 1000.0)),
    size=("statistics.physicalInputBytes", "eventPayload.statistics.physicalInputBytes"),
    inputs=("ioMetadata.inputs", "eventPayload.ioMetadata.inputs"),
    plan=("metadata.plan", "eventPayload.metadata.plan"),
    state=("metadata.queryState", "eventPayload.metadata.queryState"),
    ended=_DONE,
    failed=("failureInfo", "eventPayload.failureInfo"),
    utc=True,
)  # fmt: skip

TRINO_MYSQL = FieldMap(
    name="trino-mysql",
    source="table trino_queries of Trino's MySQL event listener; its query ids begin with the time",
    dialect="trino",
    marks=(("query_id",), ("query_state",), ("physical_input_bytes", "wall_time_millis"),
           ("query",)),
    sql=("query",),
    prepared=("prepared_query",),
    time=("create_time", "query_id"),
    query_id=("query_id",),
    catalog=("catalog",),
    schema=("schema",),
    session=("user",),
    agent=("source",),
    duration=(("wall_time_millis", 1.0),),
    size=("physical_input_bytes",),
    inputs=("inputs_json",),
    state=("query_state",),
    ended=_DONE,
    failed=("error_code",),
    utc=True,
)  # fmt: skip

SNOWFLAKE = FieldMap(
    name="snowflake",
    source="docs.snowflake.com, account usage: QUERY_HISTORY, and ACCESS_HISTORY joined with it",
    dialect="snowflake",
    marks=(("query_text",), ("start_time", "query_start_time"),
           ("warehouse_name", "bytes_scanned", "execution_status", "total_elapsed_time",
            "base_objects_accessed", "database_name")),
    sql=("query_text",),
    time=("start_time", "query_start_time"),
    query_id=("query_id",),
    catalog=("database_name",),
    schema=("schema_name",),
    session=("session_id", "user_name"),
    duration=(("total_elapsed_time", 1.0), ("execution_time", 1.0)),
    size=("bytes_scanned",),
    state=("execution_status",),
    ended=_DONE,
    failed=("error_code",),
)  # fmt: skip

DATABRICKS = FieldMap(
    name="databricks",
    source="docs.databricks.com, system table system.query.history, and the query history API",
    dialect="databricks",
    marks=(("statement_text", "query_text"), ("start_time", "query_start_time_ms"),
           ("execution_status", "status"),
           ("statement_id", "read_bytes", "metrics", "lookup_key", "executed_by")),
    sql=("statement_text", "query_text"),
    time=("start_time", "query_start_time_ms"),
    query_id=("statement_id", "query_id"),
    session=("session_id", "executed_by", "user_name"),
    agent=("client_application",),
    duration=(("total_duration_ms", 1.0), ("metrics.total_time_ms", 1.0), ("duration", 1.0)),
    size=("read_bytes", "metrics.read_bytes"),
    state=("execution_status", "status"),
    ended=_DONE,
    cached=("from_result_cache", "metrics.result_from_cache"),
    utc=True,
)  # fmt: skip

ATHENA = FieldMap(
    name="athena",
    source="docs.aws.amazon.com, Athena API: GetQueryExecution and BatchGetQueryExecution",
    dialect="athena",
    marks=(("QueryExecutionId", "QueryExecution.QueryExecutionId"),
           ("Query", "QueryExecution.Query")),
    sql=("Query", "QueryExecution.Query"),
    time=("Status.SubmissionDateTime", "QueryExecution.Status.SubmissionDateTime"),
    query_id=("QueryExecutionId", "QueryExecution.QueryExecutionId"),
    catalog=("QueryExecutionContext.Catalog", "QueryExecution.QueryExecutionContext.Catalog"),
    schema=("QueryExecutionContext.Database", "QueryExecution.QueryExecutionContext.Database"),
    duration=(("Statistics.EngineExecutionTimeInMillis", 1.0),
              ("QueryExecution.Statistics.EngineExecutionTimeInMillis", 1.0)),
    size=("Statistics.DataScannedInBytes", "QueryExecution.Statistics.DataScannedInBytes"),
    state=("Status.State", "QueryExecution.Status.State"),
    ended=_DONE,
    cached=("Statistics.ResultReuseInformation.ReusedPreviousResult",
            "QueryExecution.Statistics.ResultReuseInformation.ReusedPreviousResult"),
    utc=True,
)  # fmt: skip

REDSHIFT = FieldMap(
    name="redshift",
    source="docs.aws.amazon.com, Redshift system views: SYS_QUERY_HISTORY",
    dialect="redshift",
    marks=(("query_text",), ("start_time",), ("redshift_version", "result_cache_hit",
                                              "compute_type", "service_class_name")),
    sql=("query_text",),
    time=("start_time",),
    query_id=("query_id",),
    catalog=("database_name",),
    session=("session_id",),
    duration=(("elapsed_time", 0.001), ("execution_time", 0.001)),
    state=("status",),
    ended=_DONE,
    cached=("result_cache_hit",),
    utc=True,
)  # fmt: skip

REDSHIFT_STL = FieldMap(
    name="redshift-stl",
    source="docs.aws.amazon.com, Redshift system tables: STL_QUERY, whose times are in UTC",
    dialect="redshift",
    marks=(("querytxt",), ("starttime",)),
    sql=("querytxt",),
    time=("starttime",),
    query_id=("query",),
    catalog=("database",),
    session=("pid",),
    failed=("aborted",),
    began=("starttime",),
    until=("endtime",),
    utc=True,
)

BIGQUERY = FieldMap(
    name="bigquery",
    source="cloud.google.com, BigQuery: INFORMATION_SCHEMA.JOBS, and the jobs of the REST API",
    dialect="bigquery",
    marks=(("query", "configuration.query.query"),
           ("creation_time", "statistics.creationTime"),
           ("job_id", "jobReference.jobId", "total_bytes_processed", "statement_type")),
    sql=("query", "configuration.query.query"),
    time=("creation_time", "statistics.creationTime"),
    query_id=("job_id", "jobReference.jobId"),
    catalog=("project_id", "jobReference.projectId"),
    schema=("configuration.query.defaultDataset.datasetId",),
    session=("session_info.session_id", "user_email"),
    duration=(("statistics.finalExecutionDurationMs", 1.0),),
    began=("start_time", "statistics.startTime"),
    until=("end_time", "statistics.endTime"),
    size=("total_bytes_processed", "statistics.query.totalBytesProcessed"),
    state=("state", "status.state"),
    ended=_DONE,
    failed=("error_result", "status.errorResult"),
    cached=("cache_hit", "statistics.query.cacheHit"),
    utc=True,
)  # fmt: skip

DUCKDB = FieldMap(
    name="duckdb",
    source="DuckDB 1.5: the JSON of enable_profiling",
    dialect="duckdb",
    marks=(("query_name",), ("latency", "cpu_time"), ("children",)),
    sql=("query_name",),
    time=("timestamp",),
    duration=(("latency", 1000.0),),
    size=("total_bytes_read",),
    file_time=True,
)

OPENLINEAGE = FieldMap(
    name="openlineage",
    source="openlineage.io: run events with the SQL facet of their job",
    dialect="spark",
    marks=(("job.facets.sql.query",), ("eventTime",)),
    sql=("job.facets.sql.query",),
    time=("eventTime",),
    query_id=("run.runId",),
    engine=("run.facets.processing_engine.name",),
    state=("eventType",),
    ended=_DONE,
)

SCAN_REPORTS = FieldMap(
    name="iceberg-scans",
    source="Iceberg's REST specification: ReportMetricsRequest with a ScanReport",
    dialect="spark",
    marks=(("table-name", "report.table-name"),
           ("projected-field-names", "report.projected-field-names")),
    sql=(),
    time=("timestamp", "timestamp-ms", "timestamp_ms", "time"),
    size=("metrics.total-file-size-in-bytes.value",
          "report.metrics.total-file-size-in-bytes.value"),
    agent=("metadata.app-id",),
    file_time=True,
    scan_report=True,
)  # fmt: skip

HISTORIES = (OWN, TRINO, TRINO_MYSQL, REDSHIFT, REDSHIFT_STL, DATABRICKS, SNOWFLAKE, ATHENA,
             BIGQUERY, OPENLINEAGE, SCAN_REPORTS, DUCKDB)  # fmt: skip
NAMES = tuple(one.name for one in HISTORIES)

_OF_MAP = {
    "sql": "sql", "timestamp": "time", "queryId": "query_id", "catalog": "catalog",
    "schema": "schema", "session": "session", "engine": "engine", "bytes": "size",
    "weight": "weight", "timezone": "zone", "application": "agent", "state": "state",
}  # fmt: skip
NEEDED = ("sql", "timestamp")
"""What a map has to name."""
MAPPED = (*_OF_MAP, "durationMs")
"""What --map and `map` of a source give the name of a field for."""


def named(name: str) -> FieldMap:
    """Return the map of a format. Raises KeyError."""
    return next(one for one in HISTORIES if one.name == name)


def recognised(record: Mapping[str, Any]) -> FieldMap | None:
    """Return the map of a record's kind, None if no kind has its fields."""
    return next((one for one in HISTORIES if _is_of(record, one)), None)


def _is_of(record: Mapping[str, Any], kind: FieldMap) -> bool:
    return all(any(has(record, path) for path in paths) for paths in kind.marks)


def mapped(fields: Mapping[str, str], base: FieldMap | None = None) -> FieldMap:
    """Return the map of a history whose fields are named. base: the map of the fields that are not.
    Raises UserError if a key is unknown, or text or time is missing."""
    for key, path in fields.items():
        if key not in MAPPED or not path:
            raise UserError(
                f'"{key}" is not a value that can be mapped', do=f"one of {', '.join(MAPPED)}"
            )
    missing = [f'"{key}"' for key in NEEDED if key not in fields]
    if base is None and missing:
        raise UserError(
            f"the map does not name the field of {' and '.join(missing)}",
            details=(f"It may also name those of {', '.join(MAPPED[len(NEEDED) :])}.",),
            do="name it: sql=FIELD,timestamp=FIELD (the field that holds the time of the query)",
        )
    names: dict[str, Any] = {
        _OF_MAP[key]: (path,) for key, path in fields.items() if key in _OF_MAP
    }
    if "durationMs" in fields:
        names["duration"] = ((fields["durationMs"], 1.0),)
    if "state" in fields:
        names["ended"] = _DONE
    start = base or FieldMap("mapped", "the user's map", OWN.dialect, (), (), ())
    return replace(start, marks=(), **names)


_MISSING = object()


def _found(record: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, in whatever case its names are written throughout; _MISSING if
    there is none. A name with a dot in it counts before a path."""
    if path in record:
        return record[path]
    value: Any = record
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return _MISSING
        if name in value:
            value = value[name]
        elif (upper := name.upper()) in value:
            value = value[upper]
        elif (title := name.title()) in value:
            value = value[title]
        else:
            return _MISSING
    return value


def has(record: Mapping[str, Any], path: str) -> bool:
    return _found(record, path) is not _MISSING


def value_of(record: Mapping[str, Any], paths: Paths) -> Any:
    """Return the first value that is not missing, null or an empty text; None if there is none."""
    for path in paths:
        value = _found(record, path)
        if value is not _MISSING and value is not None and value != "":
            return value
    return None
