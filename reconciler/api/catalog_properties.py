"""The allow-list of catalog properties: one table for documents, pyiceberg, Spark and the docs.

A document may set only what is listed here for its catalog's type. Secrets belong in the catalog's
secret (or in pyiceberg's own configuration), never in a document, and are never printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REST, SQL = "rest", "sql"


@dataclass(frozen=True, slots=True)
class CatalogProperty:
    """One connection property that a catalog's document or its secret may set."""

    name: str
    """The property's name in pyiceberg's spelling."""
    spark: str
    """The property's name in Spark, "" if Spark has none or derives it."""
    types: frozenset[str]
    """The catalog types that the property belongs to."""
    description: str
    """What the property does, for the reference."""
    secret: bool = False
    """Whether it may come only from a secret or from pyiceberg's configuration."""


_BOTH = frozenset({REST, SQL})
_REST = frozenset({REST})

CATALOG_PROPERTIES: tuple[CatalogProperty, ...] = (
    CatalogProperty("uri", "uri", _BOTH, "Address of the catalog: http(s)://, or an SQL database."),
    CatalogProperty("warehouse", "warehouse", _BOTH, "Location or name of the warehouse."),
    CatalogProperty("credential", "credential", _REST, "OAuth2 client id and secret.", True),
    CatalogProperty("token", "token", _REST, "Bearer token.", True),
    CatalogProperty("oauth2-server-uri", "oauth2-server-uri", _REST, "Where tokens come from."),
    CatalogProperty("scope", "scope", _REST, "OAuth2 scope."),
    CatalogProperty("audience", "audience", _REST, "OAuth2 audience."),
    CatalogProperty("resource", "resource", _REST, "OAuth2 resource."),
    CatalogProperty("rest.sigv4-enabled", "rest.sigv4-enabled", _REST, "Sign requests for AWS."),
    CatalogProperty("rest.signing-region", "rest.signing-region", _REST, "Region to sign for."),
    CatalogProperty("rest.signing-name", "rest.signing-name", _REST, "Service to sign for."),
    CatalogProperty("s3.endpoint", "s3.endpoint", _BOTH, "Address of an S3-compatible store."),
    CatalogProperty("s3.region", "client.region", _BOTH, "Region of the bucket."),
    CatalogProperty(
        "s3.force-virtual-addressing", "", _BOTH, "Bucket in the host name; else in the path."
    ),
    CatalogProperty(
        "s3.delete-enabled", "s3.delete-enabled", _BOTH, "false: no client deletes files."
    ),
    CatalogProperty("s3.access-key-id", "s3.access-key-id", _BOTH, "Access key.", True),
    CatalogProperty("s3.secret-access-key", "s3.secret-access-key", _BOTH, "Secret key.", True),
    CatalogProperty("s3.session-token", "s3.session-token", _BOTH, "Session token.", True),
    CatalogProperty("gcs.project-id", "gcs.project-id", _BOTH, "Google Cloud project."),
    CatalogProperty("gcs.oauth2.token", "gcs.oauth2.token", _BOTH, "OAuth2 token.", True),
    CatalogProperty(
        "adls.account-name", "adls.auth.shared-key.account.name", _BOTH, "Azure storage account."
    ),
    CatalogProperty(
        "adls.account-key", "adls.auth.shared-key.account.key", _BOTH, "Its shared key.", True
    ),
)

BY_NAME = {item.name: item for item in CATALOG_PROPERTIES}

HEADER = "header."
"""Begins the names of properties that set a header of every request to a REST catalog."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
OF_THE_CLIENT = frozenset(
    ("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host",
     "transfer-encoding", "upgrade")
)  # fmt: skip
"""Headers, in lower case, that the client itself sets for each request."""
_CREDENTIAL = re.compile(
    r"token|credential|secret|passw|passphrase|private[-_.]?key|access[-_.]?key|account[-_.]?key|"
    r"api[-_.]?key|(^|[-_.])sas([-_.]|$)|authorization|jdbc\.user|connection[-_.]?string|cookie",
    re.IGNORECASE,
)


_SECRET_HEADER = re.compile(r"auth|key|sign|session|jwt|assertion", re.IGNORECASE)
"""Further parts of the names of headers that hold secrets."""


def property_of(name: str) -> CatalogProperty | None:
    """Return the property of this name that a document or its secret may set; None for others.

    A header is a secret if its name looks like one, and plain otherwise: a realm, a project.
    """
    if not name.startswith(HEADER):
        return BY_NAME.get(name)
    header = name.removeprefix(HEADER)
    if _HEADER_NAME.fullmatch(header) is None or header.lower() in OF_THE_CLIENT:
        return None
    secret = is_credential(name) or _SECRET_HEADER.search(header) is not None
    return CatalogProperty(name, name, _REST, "Header of every request.", secret)


def listed(name: str, catalog_type: str) -> CatalogProperty | None:
    """Return the property if it belongs to this type of catalog, else None."""
    found = property_of(name)
    return found if found is not None and catalog_type in found.types else None


def is_credential(key: str) -> bool:
    """Whether a property's or setting's name says that its value is a credential."""
    return _CREDENTIAL.search(key) is not None


def is_secret(name: str) -> bool:
    """Whether a property's value is a secret. Unknown names count as secret if they look like
    one."""
    item = property_of(name)
    return item.secret if item is not None else is_credential(name) or "key" in name
