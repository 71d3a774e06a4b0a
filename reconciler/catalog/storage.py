"""Translates an object store's refusals, for readers of metadata and data files.

pyarrow reports every failure of S3 and of Azure as an OSError with the store's answer in its text;
the answer to a HEAD request has no body, so that often only the HTTP status is left. A refusal of
Google Cloud Storage is a PermissionError.
"""

from __future__ import annotations

import re

from reconciler.catalog.failures import said
from reconciler.errors import AccessDeniedError, ReconcilerError, UserError

CREDENTIALS = (
    "check s3.access-key-id and s3.secret-access-key of the catalog, or the credentials of the "
    "environment (AWS_ACCESS_KEY_ID, AWS_PROFILE), and that they may read the place named above"
)
AZURE = (
    "check adls.account-name and adls.account-key of the catalog, and that they may read the place "
    "named above"
)
REGION = (
    "set s3.region of the catalog to the region of the bucket; with temporary credentials, renew "
    "s3.session-token"
)

_FROM_S3 = re.compile(r"\bAWS Error (?P<kind>\w+)(?: \(HTTP status (?P<status>\d+)\))?")
_FROM_AZURE = re.compile(r"\bAzure Error: \[\w*\] (?P<status>\d+)\b")
_DENIED = frozenset(
    ("ACCESS_DENIED", "INCOMPLETE_SIGNATURE", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID",
     "INVALID_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "REQUEST_EXPIRED",
     "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT")
)  # fmt: skip
_STATUS_DENIED = ("401", "403")
_STATUS_REGION = ("301", "400")
"""Status of a request signed for another region: AWS redirects it, most other stores call it
malformed.

An expired token is malformed, too.
"""


def storage_refusal(error: BaseException, subject: str) -> ReconcilerError | None:
    """Return the error for a request that the store refused; None for every other failure.

    subject: what was read or written ('the manifest "s3://..."').
    """
    if not isinstance(error, OSError):
        return None
    azure = _FROM_AZURE.search(str(error))
    if azure is not None:
        return _denied(error, subject, AZURE) if azure["status"] in _STATUS_DENIED else None
    found = _FROM_S3.search(str(error))
    if found is None:
        return None
    if found["kind"] in _DENIED or found["status"] in _STATUS_DENIED:
        return _denied(error, subject, CREDENTIALS)
    if found["kind"] == "PERMANENT_REDIRECT" or found["status"] in _STATUS_REGION:
        return UserError(
            f"{subject} cannot be read: the storage did not accept the request as it was signed",
            details=(said(error), "Most often the region is missing or wrong."),
            do=REGION,
        )
    return None


def _denied(error: OSError, subject: str, do: str) -> AccessDeniedError:
    what = f"{subject} cannot be read: the storage refused the credentials"
    return AccessDeniedError(what, details=(said(error),), do=do)
