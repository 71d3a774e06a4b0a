"""Why a line, a query or a scan of a log was not counted as it stands.

Imports count by these texts, the state keeps the counts, and `layoutctl workload` prints them.
"""

from __future__ import annotations

# Lines and files.
NOT_UTF8 = "not UTF-8 text"
NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "not a JSON object"
RAGGED = "row has not the columns of the header"
TOO_LONG = "line is too long"
INCOMPLETE = "last line has no end; import again when the log is complete"
UNREADABLE_EVENT = "event is not readable"
NEVER_ENDED = "execution without an end, given up for later ones"
DAMAGED = "the rest of the file is damaged"
BOMB = "the rest of the file unpacks to more than any log"

# Fields of a line.
NO_SQL = "no SQL text"
NO_TIMESTAMP = "no usable timestamp"
ABSURD_TIMESTAMP = "absurd timestamp"
BAD_WEIGHT = "weight is not a positive number"

REDACTED = "SQL text is redacted"
OTHER_HISTORY = "record of another system than the log's first"

# Statements.
NOT_ENDED = "query has not ended"
CACHED = "answered from a cache of results"
NOT_A_QUERY = "not a query"
OWN_JOB = "our own job"
FAILED = "query failed"
UNPARSABLE = "not parsable"
TOO_COMPLEX = "too complex to analyse"
PREPARES = "prepares a statement; counted where it is executed"
UNPREPARED = "executes a statement whose PREPARE is not in the log"

# Scans.
UNKNOWN_TABLES = "no table of this catalog"
TIME_TRAVEL = "reads an older snapshot or a metadata table"
STOPS_EARLY = "looks at a few rows only (LIMIT without a condition)"
OTHER_BRANCH = "reads another branch"
MAINTENANCE = "maintenance job"
UNRESOLVED = "names a column or an alias that does not exist"
UNREADABLE_FILTERS = "filters not understood"
