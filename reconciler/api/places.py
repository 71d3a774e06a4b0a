"""Which addresses and locations a catalog document may name: allow-lists of schemes, and what is
local to one machine.

A form that libraries read in different ways (`FILE:///x`, ` file:/x`, `//host/x`, `C:\\x`, a
relative path) is not on the list, so that it is always clear whether a place is local.
"""

from __future__ import annotations

import re
from collections.abc import Collection

STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
REST_URI = r"^https?://[^/?#\\\s%]+([/?#]\S*)?$"
SQL_URI = (
    r"^(sqlite([+]pysqlite)?:///|"
    r"(postgresql([+](psycopg|psycopg2|pg8000))?|"
    r"mysql([+](pymysql|mysqldb|mysqlconnector))?)://[^/?#\\\s]+/)\S+$"
)
LOCATION = r"^((s3|s3a|s3n|gs|abfs|abfss|wasb|wasbs|oss)://[^/?#\\\s%]|(file:(//)?)?/[^/\\])[^\\\x00-\x1f]*$"
WAREHOUSE_NAME = r"^([A-Za-z0-9_][^:/\\]*|arn:\S+)$"
"""What a REST catalog may call its warehouse instead of a location."""

REST_URI_RULE = "the uri of a rest catalog begins with http:// or https://"
SQL_URI_RULE = "the uri of a sql catalog is a database URI: postgresql, mysql or sqlite"
LOCATION_RULE = "a location is a URI of an object store, or an absolute path"
WAREHOUSE_RULE = "the warehouse of a rest catalog is a name or a location"

DATABASE_OPTIONS = frozenset({
    "application_name", "charset", "connect_timeout", "read_timeout", "ssl_ca", "sslmode",
    "sslrootcert", "timeout", "write_timeout",
})  # fmt: skip
"""Of a database URI in a cluster. Others name another host, a file or a plug-in."""


def is_rest_uri(text: str) -> bool:
    return re.fullmatch(REST_URI, text) is not None


def is_sql_uri(text: str) -> bool:
    return re.fullmatch(SQL_URI, text) is not None


def is_location(text: str) -> bool:
    return re.fullmatch(LOCATION, text) is not None


def is_warehouse_name(text: str) -> bool:
    return re.fullmatch(WAREHOUSE_NAME, text) is not None


def is_rest_warehouse(text: str) -> bool:
    return is_warehouse_name(text) or is_location(text)


def is_local_database(text: str) -> bool:
    """Whether a database URI names anything but a server."""
    return scheme_of(text).partition("+")[0] not in ("postgresql", "mysql")


def scheme_of(text: str) -> str:
    """In lower case; "" for a path or a name."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text.strip())
    return found[1].lower() if found else ""


def is_local(text: str, remote: Collection[str] = STORES) -> bool:
    """Whether a place is, or may be read as, one of the machine that reads it: any that does not
    name a remote scheme."""
    return scheme_of(text) not in remote or text != text.strip()
