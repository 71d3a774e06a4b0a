"""Which properties a REST catalog's server and a table may set, for pyiceberg and Iceberg alike.

Iceberg merges what a server sends (`/v1/config`, the `config` of a loaded table, vended
credentials) over the client's own properties, and some properties name a class to load. A server
may therefore set only the properties listed here. A table sets properties freely; those that name
code are removed before Iceberg reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from reconciler.table.numbers import readable

SIGNER_URIS = ("s3.signer.uri", "signer.uri")
REFRESH_ENDPOINTS = (
    "adls.refresh-credentials-endpoint",
    "client.refresh-credentials-endpoint",
    "gcs.oauth2.refresh-credentials-endpoint",
)
SIGNER_ENDPOINTS = ("s3.signer.endpoint", "signer.endpoint")

CATALOG_PROPERTIES_OF_SERVER = frozenset({
    "namespace-separator",
    "prefix",
    "rest-metrics-reporting-enabled",
    "rest-page-size",
    "snapshot-loading-mode",
    "token",
    "uri",
    "view-endpoints-supported",
    "warehouse",
})  # fmt: skip
"""Properties for requests to the server itself."""

FILE_PROPERTIES_OF_SERVER = frozenset({
    "adls.account-host",
    "adls.account-key",
    "adls.account-name",
    "adls.auth.shared-key.account.key",
    "adls.auth.shared-key.account.name",
    "adls.refresh-credentials-enabled",
    "adls.sas-token",
    "adls.token",
    "client.refresh-credentials-enabled",
    "client.region",
    "gcs.oauth2.refresh-credentials-enabled",
    "gcs.oauth2.token",
    "gcs.oauth2.token-expires-at",
    "gcs.project-id",
    "gcs.service.host",
    "gcs.user-project",
    "s3.access-key-id",
    "s3.anonymous",
    "s3.cross-region-access-enabled",
    "s3.delete-enabled",
    "s3.endpoint",
    "s3.force-virtual-addressing",
    "s3.path-style-access",
    "s3.region",
    "s3.remote-signing-enabled",
    "s3.secret-access-key",
    "s3.session-token",
    "s3.session-token-expires-at-ms",
    "s3.signer",
    *REFRESH_ENDPOINTS,
    *SIGNER_ENDPOINTS,
    *SIGNER_URIS,
    "s3.sse.key",
    "s3.sse.md5",
    "s3.sse.type",
    "s3.use-arn-region-enabled",
})  # fmt: skip
"""Properties for a table's files, and vended credentials for them."""

FILE_PREFIXES_OF_SERVER = (
    "adls.connection-string.",
    "adls.sas-token-expires-at-ms.",
    "adls.sas-token.",
)
"""Prefixes of vended credentials whose names end in a storage account."""

REST_SIGNER = "S3V4RestSigner"
"""The only accepted value of s3.signer: pyiceberg's signer that asks the catalog's server."""

_NAMES_CODE = re.compile(
    r"(^|[._-])(py-)?(impls?|class(es|name)?|factory|factories|providers?|reporters?|plugins?"
    r"|listeners?|extensions?|serializers?|signer|kms(-type)?|auth|codecs|crypto)($|[._-])",
    re.IGNORECASE,
)
STAGED_PREFIXES = ("write.", "read.", "schema.", "parquet.")


def names_code(name: str) -> bool:
    """Whether a table property's name says that its value names a class, or code otherwise."""
    # A setting of one column ends in the column's name, which may be anything.
    setting = name.split(".column.")[0] if name.startswith("write.") else name
    return _NAMES_CODE.search(setting) is not None


def table_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a table's properties without those that name code."""
    return {name: value for name, value in properties.items() if not names_code(name)}


def staged_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that reading and writing a table's files takes from the table.

    Iceberg's Parquet writer copies every property of the table into Hadoop's configuration, where
    a name such as fs.file.impl chooses the class of a file system. Hence a list of prefixes. It
    raises at a number that is none.
    """
    return {
        name: value
        for name, value in readable(table_properties(properties)).items()
        if name.startswith(STAGED_PREFIXES)
    }


def catalog_config(served: Mapping[str, Any] | None, origin: str) -> dict[str, str]:
    """Return the accepted defaults or overrides of /v1/config. origin: address of the server."""
    known = CATALOG_PROPERTIES_OF_SERVER | FILE_PROPERTIES_OF_SERVER
    found = _texts(served, known)
    if not found.get("uri", "http://").lower().startswith(("http://", "https://")):
        del found["uri"]
    return _signed_by(found, found.get("uri", origin))


def table_config(served: Mapping[str, Any] | None, origin: str) -> dict[str, str]:
    """Return the accepted config of a loaded table, or of one vended credential."""
    return _signed_by(_texts(served, FILE_PROPERTIES_OF_SERVER | {"token"}), origin)


def _texts(served: Mapping[str, Any] | None, known: frozenset[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in (served or {}).items()
        if isinstance(value, str)
        and (name in known or name.startswith(FILE_PREFIXES_OF_SERVER))
    }  # fmt: skip


def _signed_by(found: dict[str, str], origin: str) -> dict[str, str]:
    """Keep only signers and refresh endpoints of the catalog's own server, because they get the
    token."""
    if found.get("s3.signer", REST_SIGNER) != REST_SIGNER:
        del found["s3.signer"]
    for name in (*SIGNER_URIS, *SIGNER_ENDPOINTS, *REFRESH_ENDPOINTS):
        if name in found and not same_server(found[name], origin, name in SIGNER_URIS):
            del found[name]
    return found


def same_server(uri: str, origin: str, absolute: bool = False) -> bool:
    """Whether an address is one of the origin's server, or relative to it unless `absolute`."""
    try:
        ours, theirs = urlsplit(origin), urlsplit(uri)
    except ValueError:
        return False
    if not theirs.scheme and not theirs.netloc:
        return not absolute and "\\" not in uri
    return (theirs.scheme.lower(), theirs.netloc.lower()) == (
        ours.scheme.lower(), ours.netloc.lower()
    )  # fmt: skip
