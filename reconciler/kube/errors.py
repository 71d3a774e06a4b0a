"""The API server's refusals: one class each, with the exit code of its base.

Foreign exceptions and HTTP answers become these in `reconciler.kube.answers` and nowhere else.
"""

from __future__ import annotations

from reconciler.errors import BlockedError, ReconcilerError, UnavailableError, UserError


class ApiError(ReconcilerError):
    """Base. status: the HTTP status, 0 without an answer."""

    status: int = 0


class Conflict(ApiError, UnavailableError):
    """The object changed since it was read, or another manager owns the field (409)."""


class AlreadyExists(ApiError, UserError):
    """An object of that name exists (409)."""


class NotFound(ApiError, UserError):
    """No such object, namespace or kind (404)."""


class Gone(ApiError, UnavailableError):
    """The resource version or the page is no longer kept (410): list again."""


class Forbidden(ApiError, UserError):
    """RBAC or an admission plugin refused (403)."""


class QuotaExceeded(ApiError, BlockedError):
    """A ResourceQuota of the namespace refused (403)."""


class Unauthorized(ApiError, UserError):
    """The token or certificate is not accepted (401)."""


class Invalid(ApiError, UserError):
    """The document breaks the schema or a rule (400, 422)."""


class ApiUnavailable(ApiError, UnavailableError):
    """No answer, a late answer, 429 or 5xx."""

    immediate: bool = False
    """The connection broke; the answer was not merely late. Trying again is cheap."""


def from_answer(status: int, document: dict[str, object], subject: str) -> ApiError:
    """Return the error of an HTTP answer of 400 and above. document: the Status object, {} if
    none."""
    reason = str(document.get("reason") or "")
    message = " ".join(str(document.get("message") or f"HTTP status {status}").split())
    error = _class_of(status, reason, message)(
        f"{subject}: {_head(status, reason)}",
        details=(message[:1000],),
        do=_remedy(status, message),
    )
    error.status = status
    return error


def _class_of(status: int, reason: str, message: str) -> type[ApiError]:
    if status == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if status == 403:
        return QuotaExceeded if "exceeded quota" in message else Forbidden
    if status == 429 or status >= 500:
        return ApiUnavailable
    known = {401: Unauthorized, 404: NotFound, 410: Gone, 400: Invalid, 422: Invalid}
    return known.get(status, ApiError)


def _head(status: int, reason: str) -> str:
    texts = {
        401: "the API server does not accept the credentials",
        403: "the API server refused",
        404: "not found",
        409: "changed meanwhile",
        410: "no longer kept by the API server",
        429: "the API server throttles requests",
    }
    if reason == "AlreadyExists":
        return "already exists"
    if status in (400, 422):
        return "not valid"
    return texts.get(status, f"the API server answered {status}")


def _remedy(status: int, message: str) -> str | None:
    if status == 403 and "exceeded quota" in message:
        return "wait for running pods to end, or raise the ResourceQuota of the namespace"
    return {
        401: "renew the token or certificate of your kubeconfig context",
        403: "ask for the role that the message names (docs/operations)",
        409: "run it again",
        429: "run it again",
    }.get(status)
