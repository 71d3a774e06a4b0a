"""Reads a catalog's configuration in the cluster: its document, and its secret as files or as data.

The secret's keys have the same allow-list as the document's properties. If both have one, the
secret's value is used, so that an address with a password can stay out of the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reconciler.api import places
from reconciler.api.catalog_checks import allowed_keys, has_line_end
from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.catalog_properties import listed
from reconciler.api.documents import IcebergCatalog
from reconciler.api.reach import Reach
from reconciler.errors import AccessDeniedError, RefusedAddressError, UserError


def catalog_config(
    document: IcebergCatalog, secrets: Mapping[str, str], reach: Reach | None = None
) -> CatalogConfig:
    """Return the catalog that a document and its secret describe.

    Raises UserError for a key that is not allowed. A message names keys, never values. reach: in a
    cluster, where `refuse_places` holds the catalog to it.
    """
    kind = document.spec.type.value
    strangers = sorted(key for key in secrets if listed(key, kind) is None)
    if strangers:
        known = {*allowed_keys(kind), *allowed_keys(kind, secret=True)}
        raise UserError(
            f"the secret of catalog {document.name} has the key {strangers[0]}, "
            f"which is not a property of type {kind}",
            details=(f"allowed: {', '.join(sorted(known))}",),
            do="remove the key from the Secret that spec.secretRef names",
        )
    broken = sorted(key for key, value in secrets.items() if has_line_end(key, value))
    if broken:
        raise UserError(
            f"the value of {broken[0]} in the secret of catalog {document.name} has more than one "
            "line, and a header is one line",
            do="write it without a line end, as by kubectl create secret --from-literal",
        )
    return CatalogConfig(
        document.spec.catalog_name,
        kind,
        {**document.spec.properties, **secrets},
        f"IcebergCatalog {document.namespace}/{document.name}",
        engine=document.spec.engine.type,
        prices=document.spec.prices,
        reach=reach,
    )


def refuse_places(document: IcebergCatalog, config: CatalogConfig) -> None:
    """Raises RefusedAddressError for a place that is not on the list of its kind, or that is local
    where nothing local is allowed. What the secret says counts, not what it replaces."""
    local_too = config.reach is None or config.reach.local_files
    named = dict(_places(document, config))
    unknown = next((field for field, (_, listed) in named.items() if not listed), None)
    if unknown is not None:
        raise RefusedAddressError(
            f"{unknown} is not a known form of address or location",
            do="write it as docs/reference/policy.md shows, in lower case",
        )
    local = next((field for field, (is_local, _) in named.items() if is_local), None)
    if local is not None and not local_too:
        raise RefusedAddressError(
            f"{local} is a local file, which the pods of a cluster do not share",
            do="use an object store and a database server",
        )


def _places(
    document: IcebergCatalog, config: CatalogConfig
) -> Iterator[tuple[str, tuple[bool, bool]]]:
    """(field, (whether it is local, whether it is on the list))."""
    uri, warehouse = (config.properties.get(name, "") for name in ("uri", "warehouse"))
    if config.type == "sql":
        yield "spec.properties.uri", (places.is_local_database(uri), places.is_sql_uri(uri))
    else:
        yield "spec.properties.uri", (False, places.is_rest_uri(uri))
    if warehouse and (config.type == "sql" or not places.is_warehouse_name(warehouse)):
        yield "spec.properties.warehouse", _location(warehouse)
    if document.spec.system.plans.uri:
        yield "spec.system.plans.uri", _location(document.spec.system.plans.uri)
    for number, source in enumerate(document.spec.workload.sources):
        yield f"spec.workload.sources[{number}].uri", _location(source.uri)


def _location(text: str) -> tuple[bool, bool]:
    return places.is_local(text), places.is_location(text)


def mounted_secrets(directory: Path) -> dict[str, str]:
    """Return key -> value of a mounted secret, {} if none is mounted. Raises AccessDeniedError."""
    if not directory.is_dir():
        return {}
    try:
        # Names with two dots belong to the kubelet: the data is behind symbolic links.
        files = [path for path in directory.iterdir() if not path.name.startswith("..")]
        return {path.name: path.read_text(encoding="utf-8").strip("\r\n") for path in files}
    except (OSError, UnicodeDecodeError) as error:
        raise AccessDeniedError(
            f"the catalog's secret in {directory} cannot be read",
            details=(type(error).__name__,),
            do="check that the secret holds texts, and that it is mounted readable for the job",
        ) from error
