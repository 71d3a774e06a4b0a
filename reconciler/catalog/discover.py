"""Finds the configured catalogs, and the one that a name means. Lists candidates; never guesses.

Order of precedence: LAYOUTCTL_* variables, IcebergCatalog documents, PYICEBERG_* variables,
.pyiceberg.yaml, spark.sql.catalog.* of spark-defaults.conf. The first that names a catalog defines
it; credentials that a document must not hold are taken from the later ones under the same name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.catalog_properties import is_secret
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.catalog.properties import (
    infer_type,
    properties_from_spark,
    pyiceberg_properties,
    spark_conf,
)
from reconciler.errors import UserError, first_line
from reconciler.table.observation import quoted_name

__all__ = [
    "FoundCatalog",
    "find_catalogs",
    "names_for",
    "parse_identifier",
    "pyiceberg_properties",
    "resolve_catalog",
    "resolve_levels",
    "resolve_table",
    "spark_conf",
    "unknown_catalogs",
]

SUPPORTED = ("rest", "sql", "glue")
NAME_VARIABLE = "LAYOUTCTL_CATALOG"
PROPERTY_PREFIX = "LAYOUTCTL_CATALOG__"
SOURCES = (
    "looked at: LAYOUTCTL_CATALOG__*, documents under -f, PYICEBERG_CATALOG__*, .pyiceberg.yaml, "
    "spark-defaults.conf"
)


@dataclass(frozen=True, slots=True)
class FoundCatalog:
    """A configured catalog."""

    config: CatalogConfig
    """Its configuration."""
    supported: bool
    """Whether its type can be used."""


def find_catalogs(
    documents: Sequence[IcebergCatalog], environ: Mapping[str, str] | None = None
) -> tuple[FoundCatalog, ...]:
    """Return every catalog, in order of precedence, each name once."""
    env = os.environ if environ is None else environ
    found: dict[str, CatalogConfig] = {}
    for config in (
        *_from_variables(env),
        *(_from_document(document) for document in documents),
        *_from_pyiceberg(env),
        *_from_spark_defaults(env),
    ):
        first = found.get(config.name)
        if first is None:
            found[config.name] = config
        elif first.type == config.type:
            found[config.name] = _with_credentials(first, config)
    return tuple(FoundCatalog(config, config.type in SUPPORTED) for config in found.values())


def names_for(documents: Sequence[IcebergCatalog]) -> list[str]:
    """Return the names by which a policy may refer to a catalog: of documents, and configured."""
    configured = {item.config.name for item in find_catalogs(documents)}
    return sorted(configured | {document.name for document in documents})


def unknown_catalogs(
    policies: Iterable[TableLayoutPolicy], documents: Sequence[IcebergCatalog]
) -> list[TableLayoutPolicy]:
    """Return the policies whose catalogRef is neither a document nor configured."""
    known = set(names_for(documents))
    named = ((policy, policy.spec.catalog.name) for policy in policies)
    # pyiceberg folds names to lower case when it reads its configuration
    return [policy for policy, name in named if not {name, name.lower()} & known]


ENDPOINTS = ("uri", "s3.endpoint", "oauth2-server-uri")
"""Properties that decide where secrets are sent."""


def _elsewhere(first: CatalogConfig, later: CatalogConfig, name: str) -> bool:
    ours, theirs = first.properties.get(name), later.properties.get(name)
    if ours is None or (theirs is None and name == "uri"):
        return False
    return theirs is None or urlsplit(ours)[:2] != urlsplit(theirs)[:2]


def _with_credentials(first: CatalogConfig, later: CatalogConfig) -> CatalogConfig:
    """Return the first one with the later one's secrets, unless these belong to another server.

    A document of a pull request must not be able to send the user's token to a host that it names.
    """
    if any(_elsewhere(first, later, name) for name in ENDPOINTS):
        return first
    extra = {
        name: value
        for name, value in later.properties.items()
        if is_secret(name) and name not in first.properties
    }
    return dataclasses.replace(first, properties={**extra, **first.properties})


def resolve_catalog(
    name: str | None,
    documents: Sequence[IcebergCatalog],
    environ: Mapping[str, str] | None = None,
) -> CatalogConfig:
    """Return the catalog of that name; without a name LAYOUTCTL_CATALOG's, or the only one there
    is."""
    env = os.environ if environ is None else environ
    catalogs = find_catalogs(documents, env)
    wanted = name or env.get(NAME_VARIABLE) or None
    if wanted is not None:
        return _named(wanted, catalogs)
    usable = [item.config for item in catalogs if item.supported]
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise UserError("no catalog is configured", details=_listing(catalogs), do=HOW_TO_CONFIGURE)
    raise UserError(
        f"{len(usable)} catalogs are configured and none was chosen",
        details=_listing(catalogs),
        do=f"pass --catalog NAME, or set {NAME_VARIABLE}",
    )


HOW_TO_CONFIGURE = (
    "set PYICEBERG_CATALOG__NAME__URI (for example sqlite:////path/catalog.db or "
    "http://host:8181), or write an IcebergCatalog document and pass -f"
)


def _named(name: str, catalogs: Sequence[FoundCatalog]) -> CatalogConfig:
    exact = [item for item in catalogs if item.config.name == name]
    # pyiceberg folds names to lower case when it reads its configuration
    chosen = exact or [item for item in catalogs if item.config.name == name.lower()]
    if not chosen:
        raise UserError(
            f'catalog "{name}" is not configured',
            details=_listing(catalogs),
            do=HOW_TO_CONFIGURE if not catalogs else "pass the name of one of these",
        )
    if not chosen[0].supported:
        raise UserError(
            f'catalog "{name}" has the type "{chosen[0].config.type}", which is not supported',
            details=(f"found in {chosen[0].config.source}",),
            do="use a REST or an SQL catalog, or one of Glue",
        )
    config = chosen[0].config
    return dataclasses.replace(config, name=name)


def _listing(catalogs: Sequence[FoundCatalog]) -> tuple[str, ...]:
    if not catalogs:
        return (SOURCES,)
    return tuple(
        f"{item.config.name}  {item.config.type}  {item.config.source}"
        + ("" if item.supported else "  (type not supported)")
        for item in catalogs
    )


def parse_identifier(text: str) -> tuple[str, ...]:
    """Return the levels of a dotted name; backticks quote a level, a doubled backtick is a literal
    one."""
    levels: list[str] = []
    at = 0
    while True:
        if at < len(text) and text[at] == "`":
            level, at = _quoted_level(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            level, at = text[at:end], end
            if "`" in level:
                raise UserError(f'"{text}" is not a table name', do=NAME_FORM)
        if not level:
            raise UserError(f'"{text}" is not a table name', do=NAME_FORM)
        levels.append(level)
        if at == len(text):
            return tuple(levels)
        if text[at] != ".":
            raise UserError(f'"{text}" is not a table name', do=NAME_FORM)
        at += 1


NAME_FORM = "write CATALOG.NAMESPACE.TABLE, a level that holds a dot in `backticks`"


def _quoted_level(text: str, at: int) -> tuple[str, int]:
    level, at = "", at + 1
    while True:
        end = text.find("`", at)
        if end < 0:
            raise UserError(f'"{text}" has a backtick that is not closed', do=NAME_FORM)
        level += text[at:end]
        if text[end + 1 : end + 2] != "`":
            return level, end + 1
        level, at = level + "`", end + 2


def resolve_levels(
    name: str | None,
    catalog: str | None,
    documents: Sequence[IcebergCatalog],
    environ: Mapping[str, str] | None = None,
    *,
    least: int = 0,
) -> tuple[CatalogConfig, tuple[str, ...]]:
    """Return the catalog that a dotted name means, and the levels below it.

    A first level that is a configured catalog's name is that catalog, if at least `least` levels
    remain; otherwise all levels are the catalog's own.
    """
    levels = parse_identifier(name) if name else ()
    names = {item.config.name for item in find_catalogs(documents, environ)}
    if catalog is not None:
        config = resolve_catalog(catalog, documents, environ)
        prefixed = levels[:1] == (config.name,) and len(levels) > least
        return config, levels[1:] if prefixed else levels
    if levels and levels[0] in names and len(levels) > least:
        return resolve_catalog(levels[0], documents, environ), levels[1:]
    return resolve_catalog(None, documents, environ), levels


def resolve_table(
    name: str,
    catalog: str | None = None,
    documents: Sequence[IcebergCatalog] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[CatalogConfig, tuple[str, ...]]:
    """Return the catalog and the identifier levels of "warehouse.sales.lineitem" or
    "sales.lineitem"."""
    config, levels = resolve_levels(name, catalog, documents, environ, least=2)
    if len(levels) < 2:
        raise UserError(
            f'"{quoted_name(levels)}" names no table: the namespace is missing', do=NAME_FORM
        )
    return config, levels


def _from_variables(env: Mapping[str, str]) -> Iterable[CatalogConfig]:
    """Return the catalog of LAYOUTCTL_CATALOG=name with LAYOUTCTL_CATALOG__URI=..., __S3__ENDPOINT
    for s3.endpoint."""
    properties = {
        key[len(PROPERTY_PREFIX) :].lower().replace("__", ".").replace("_", "-"): value
        for key, value in env.items()
        if key.startswith(PROPERTY_PREFIX)
    }
    if properties:
        name = env.get(NAME_VARIABLE, "default")
        yield _config(name, properties, "LAYOUTCTL_CATALOG__* variables")


def _config(name: str, properties: Mapping[str, str], source: str) -> CatalogConfig:
    kind = infer_type(properties) or "unknown"
    return CatalogConfig(name, kind, dict(properties), source, own=True)


def _from_document(document: IcebergCatalog) -> CatalogConfig:
    spec = document.spec
    origin = getattr(document.origin, "file", "") or "a document"
    properties = {**spec.properties, "type": spec.type.value}
    return CatalogConfig(
        spec.catalog_name, spec.type.value, properties, origin,
        engine=spec.engine.type, prices=spec.prices,
    )  # fmt: skip


def _from_pyiceberg(env: Mapping[str, str]) -> Iterable[CatalogConfig]:
    """Return the catalogs of PYICEBERG_CATALOG__* and .pyiceberg.yaml, merged as by pyiceberg."""
    merged: dict[str, dict[str, str]] = {}
    source: dict[str, str] = {}
    path, from_file = _pyiceberg_file(env)
    for name, properties in from_file.items():
        merged[name] = properties
        source[name] = path
    for key, value in sorted(env.items()):
        parts = key.lower().split("__", maxsplit=2)
        if len(parts) == 3 and parts[0] == "pyiceberg_catalog":
            name = parts[1].replace("_", "-")
            prop = parts[2].replace("__", ".").replace("_", "-")
            merged.setdefault(name, {})[prop] = value
            source[name] = "PYICEBERG_CATALOG__* variables"
    for name, properties in merged.items():
        yield _config(name, properties, source[name])


def _pyiceberg_file(env: Mapping[str, str]) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the first .pyiceberg.yaml of $PYICEBERG_HOME, the home and the working directory."""
    homes = (env.get("PYICEBERG_HOME"), env.get("HOME"), str(Path.cwd()))
    for directory in (home for home in homes if home):
        path = Path(directory) / ".pyiceberg.yaml"
        if not path.is_file():
            continue
        body = _strict_yaml(path)
        catalogs = {key.lower(): value for key, value in body.items()}.get("catalog") or {}
        return ".pyiceberg.yaml", {
            str(name).lower(): {str(key).lower(): str(value) for key, value in entry.items()}
            for name, entry in (catalogs.items() if isinstance(catalogs, dict) else ())
            if isinstance(entry, dict)
        }
    return "", {}


def _strict_yaml(path: Path) -> dict[str, Any]:
    """Return the file's content as pyiceberg reads it, which takes less than YAML allows: importing
    pyiceberg fails on any other file."""
    import strictyaml

    try:
        found = strictyaml.load(path.read_text(encoding="utf-8")).data or {}
    except (strictyaml.YAMLError, UnicodeDecodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        at = f"line {mark.line + 1}: " if mark is not None else ""
        raise UserError(
            f"pyiceberg cannot read {path}",
            details=(f"{at}{problem or first_line(error)}",),
            do="write each property on a line of its own, without braces, brackets, anchors and "
            "tags; or point PYICEBERG_HOME to another directory",
        ) from error
    return found if isinstance(found, dict) else {}


def _from_spark_defaults(env: Mapping[str, str]) -> Iterable[CatalogConfig]:
    """Return the Iceberg catalogs of $SPARK_CONF_DIR or $SPARK_HOME/conf."""
    directory = env.get("SPARK_CONF_DIR") or (
        f"{env['SPARK_HOME']}/conf" if env.get("SPARK_HOME") else None
    )
    path = Path(directory) / "spark-defaults.conf" if directory else None
    if path is None or not path.is_file():
        return
    settings = _java_properties(path.read_text(encoding="utf-8"))
    prefix = "spark.sql.catalog."
    for key, implementation in settings.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or "." in name or "iceberg" not in implementation:
            continue
        own = {
            other.removeprefix(f"{key}."): value
            for other, value in settings.items()
            if other.startswith(f"{key}.")
        }
        properties = properties_from_spark(own)
        if properties is None:
            kind = own.get("type") or own.get("catalog-impl", "unknown").rpartition(".")[2]
            yield CatalogConfig(name, kind, {}, "spark-defaults.conf")
        else:
            yield CatalogConfig(
                name, properties["type"], properties, "spark-defaults.conf", own=True
            )


def _java_properties(text: str) -> dict[str, str]:
    """Return keys and values of a properties file: separated by blanks, "=" or ":"."""
    found: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        end = next((i for i, char in enumerate(line) if char in "=: \t"), len(line))
        found[line[:end]] = line[end:].lstrip(" \t").removeprefix("=").removeprefix(":").strip()
    return found
