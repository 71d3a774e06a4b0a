"""Reads a catalog's configuration in the cluster: its document, and its secret as files or as data.

The secret's keys have the same allow-list as the document's properties. If both have one, the
secret's value is used, so that an address with a password can stay out of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reconciler.api.catalog_checks import allowed_keys
from reconciler.api.documents import IcebergCatalog
from reconciler.core.execution import CatalogConfig
from reconciler.errors import AccessDeniedError, UserError


def catalog_config(document: IcebergCatalog, secrets: Mapping[str, str]) -> CatalogConfig:
    """Return the catalog that a document and its secret describe.

    Raises UserError for a key that is not allowed. A message names keys, never values.
    """
    kind = document.spec.type.value
    known = {*allowed_keys(kind), *allowed_keys(kind, secret=True)}
    strangers = sorted(secrets.keys() - known)
    if strangers:
        raise UserError(
            f"the secret of catalog {document.name} has the key {strangers[0]}, "
            f"which is not a property of type {kind}",
            details=(f"allowed: {', '.join(sorted(known))}",),
            do="remove the key from the Secret that spec.secretRef names",
        )
    return CatalogConfig(
        document.spec.catalog_name,
        kind,
        {**document.spec.properties, **secrets},
        f"IcebergCatalog {document.namespace}/{document.name}",
    )


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
