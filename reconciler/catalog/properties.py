"""Converts one catalog configuration to pyiceberg's properties and to Spark's, by the allow-list.

Both engines must share one name and one database; for an embedded catalog each must wait for the
other's locks instead of failing, hence the timeouts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.catalog_properties import CATALOG_PROPERTIES, HEADER, is_secret, listed
from reconciler.errors import UserError
from reconciler.table.flags import flag

LOCK_WAIT_SECONDS = 30
SHORTEST_SECRET = 4
"""Shorter values are not replaced in texts, which would become unreadable."""
_SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)(\?(?P<query>.*))?$")
_HOST = re.compile(r"[\w.-]+")
_DATABASE = re.compile(r"/?[\w.-]*")
_DRIVERS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql"}


def sqlite_path(uri: str) -> Path | None:
    """Return the database file of an SQLAlchemy SQLite URI, None for other databases and in
    memory."""
    match = _SQLITE.match(uri)
    if match is None:
        return None
    path = match.group("path").removeprefix("file:")
    return Path(path).absolute() if path and ":memory:" not in path else None


def pyiceberg_properties(config: CatalogConfig) -> dict[str, str]:
    """Return the properties for pyiceberg. Only a person's own configuration may have unlisted
    ones."""
    properties = {
        name: value
        for name, value in config.properties.items()
        if config.own or listed(name, config.type) is not None
    }
    properties["type"] = config.type
    match = _SQLITE.match(properties.get("uri", ""))
    if match:
        query = dict(parse_qsl(match.group("query") or "", keep_blank_values=True))
        query.setdefault("timeout", str(LOCK_WAIT_SECONDS))
        properties["uri"] = properties["uri"].split("?")[0] + "?" + urlencode(query, safe="/:")
    region = _region_at_endpoint(config)
    if region:
        properties["client.region"] = region  # a server overrides this key
    return properties


def spark_conf(config: CatalogConfig, path: str = "") -> dict[str, str]:
    """Return the settings of a Spark session with the same catalog under the same name.

    path: of a file that the session will read, because a server's warehouse may be a mere name.
    """
    _refuse_environment(config)
    prefix = f"spark.sql.catalog.{config.name}"
    conf = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc" if config.type == "sql" else config.type,
        f"{prefix}.cache-enabled": "false",
    }
    for name, value in config.properties.items():
        item = listed(name, config.type)
        if item is not None and item.spark:
            conf[f"{prefix}.{item.spark}"] = value
    if config.type == "sql":
        conf.update({f"{prefix}.{key}": value for key, value in _jdbc(config).items()})
    conf.update({f"{prefix}.{key}": value for key, value in _object_store(config, path).items()})
    return conf


def _refuse_environment(config: CatalogConfig) -> None:
    """Raise UserError if a document has Iceberg read a variable of the environment."""
    for name, value in config.properties.items():
        if value.startswith("env:") and not config.own:
            raise UserError(
                f'catalog "{config.name}": property "{name}" names a variable of the environment',
                details=("Iceberg would send its value to the catalog's server.",),
                do="put the value into the catalog's Secret, or into your own configuration",
            )


def _jdbc(config: CatalogConfig) -> dict[str, str]:
    """Return an SQLAlchemy URI as JDBC properties; user and password are separate from the
    address."""
    uri = config.properties.get("uri", "")
    match = _SQLITE.match(uri)
    if match:
        path = sqlite_path(uri)
        if path is None:
            raise UserError(
                f'catalog "{config.name}" is in memory, which Spark cannot share',
                do="keep the catalog in a file: sqlite:////absolute/path.db",
            )
        query = {"busy_timeout": str(LOCK_WAIT_SECONDS * 1000)}
        if dict(parse_qsl(match.group("query") or "")).get("mode") == "ro":
            query["open_mode"] = "1"
        return {"uri": f"jdbc:sqlite:{path}?{urlencode(query)}", "jdbc.schema-version": "V1"}
    parts = urlsplit(uri)
    driver = _DRIVERS.get(parts.scheme.split("+")[0])
    if driver is None or not parts.hostname:
        raise UserError(
            f'catalog "{config.name}": its database cannot be given to Spark',
            details=("known are sqlite, postgresql and mysql",),
            do="use one of these, or a REST catalog",
        )
    if not _HOST.fullmatch(parts.hostname) or not _DATABASE.fullmatch(parts.path):
        raise UserError(
            f'catalog "{config.name}": the host or the database in its uri has characters that a '
            "JDBC driver could read as options",
            details=("An option of a JDBC address can name a class to load.",),
            do="write the uri as DATABASE://HOST:PORT/NAME with letters, digits, '.', '-' and '_'",
        )
    port = f":{parts.port}" if parts.port else ""
    found = {
        "uri": f"jdbc:{driver}://{parts.hostname}{port}{parts.path}",
        "jdbc.schema-version": "V1",
    }
    if parts.username:
        found["jdbc.user"] = unquote(parts.username)
    if parts.password:
        found["jdbc.password"] = unquote(parts.password)
    return found


def _object_store(config: CatalogConfig, path: str) -> dict[str, str]:
    """Return what Spark needs beside the mapped properties to reach S3."""
    from pyiceberg.utils.properties import property_as_bool

    names = config.properties
    on_s3 = any(name.startswith("s3.") for name in names)
    places = (names.get("warehouse", ""), path)
    on_s3 = on_s3 or any(place.startswith(("s3://", "s3a://")) for place in places)
    if not on_s3:
        return {}
    found = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    region = _region_at_endpoint(config)
    if region:
        found["client.region"] = region
    if "s3.endpoint" in names:  # pyiceberg puts the bucket in the path by default
        virtual = property_as_bool(dict(names), "s3.force-virtual-addressing", False)
        found["s3.path-style-access"] = "false" if virtual else "true"
    return found


def _region_at_endpoint(config: CatalogConfig) -> str:
    """Return the region to sign with at an endpoint for which none is configured; "" otherwise.

    Without one, pyiceberg would ask AWS for the region of a bucket of that name, and Spark would
    fail. Stores other than AWS accept us-east-1, unless they were given a region of their own.
    """
    names = config.properties
    if "s3.endpoint" not in names or "s3.region" in names:
        return ""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def properties_from_spark(settings: Mapping[str, str]) -> dict[str, str] | None:
    """Return one catalog's Spark settings in pyiceberg's spelling; None for an unsupported type.

    settings: keys below spark.sql.catalog.<name>, without that prefix.
    """
    implementation = settings.get("catalog-impl", "").rpartition(".")[2]
    kind = settings.get("type") or {"RESTCatalog": "rest", "JdbcCatalog": "jdbc"}.get(
        implementation
    )
    kind = {"jdbc": "sql", "rest": "rest"}.get(kind or "")
    if kind is None:
        return None
    found = {"type": kind}
    for item in CATALOG_PROPERTIES:
        value = settings.get(item.spark) if item.spark else None
        if value is not None and kind in item.types:
            found[item.name] = value
    headers = (name for name in settings if name.startswith(HEADER))
    found |= {name: settings[name] for name in headers if listed(name, kind) is not None}
    if kind == "sql":
        found["uri"] = _sqlalchemy(settings)
    if not flag(settings, "s3.path-style-access", default=True):
        found["s3.force-virtual-addressing"] = "true"
    return found


def _sqlalchemy(settings: Mapping[str, str]) -> str:
    """Return jdbc:sqlite:/x.db as sqlite:////x.db; other databases with their user and password."""
    uri = settings.get("uri", "").removeprefix("jdbc:")
    if uri.startswith("sqlite:"):
        path = uri.removeprefix("sqlite:").split("?")[0]
        return f"sqlite:///{path}?timeout={LOCK_WAIT_SECONDS}"
    parts = urlsplit(uri)
    user = settings.get("jdbc.user", "")
    password = f":{settings['jdbc.password']}" if "jdbc.password" in settings else ""
    at = f"{user}{password}@" if user else ""
    scheme = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql"}.get(
        parts.scheme, parts.scheme
    )
    return f"{scheme}://{at}{parts.netloc}{parts.path}"


def redact(text: str, config: CatalogConfig) -> str:
    """Return the text without any secret value of the configuration."""
    for value in secret_values(config):
        text = text.replace(value, "***")
    return text


def secret_values(config: CatalogConfig) -> list[str]:
    """Return what no message may contain, longest first: secret properties, and what the catalog's
    address contains as a password or an option."""
    uri = urlsplit(config.properties.get("uri", ""))
    found = {value for name, value in config.properties.items() if is_secret(name)}
    found |= {value for _, value in parse_qsl(uri.query)}
    found.add(config.properties.get("credential", "").partition(":")[2])  # it is sent alone
    long_enough = {value for value in found if len(value) >= SHORTEST_SECRET}
    if uri.password:
        long_enough |= {uri.password, unquote(uri.password)}
    return sorted(long_enough, key=len, reverse=True)


def infer_type(properties: Mapping[str, str]) -> str | None:
    """Return the catalog type of properties without a `type`; None if it cannot be inferred."""
    kind = properties.get("type", "").lower()
    if kind:
        return kind
    if "py-catalog-impl" in properties:
        return "custom"
    uri = properties.get("uri", "")
    if uri.startswith(("http://", "https://")):
        return "rest"
    return "sql" if re.match(r"(sqlite|postgres|mysql)", uri) else None
