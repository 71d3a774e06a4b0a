"""The input of a driver pod: one JSON document in its environment, written by the operator.

It names the plan by place and digest, the admitted actions and what the budgets leave; it contains
the policy and the catalog as they were then. A recommend job has a document of its own. Versioned
and strict: a driver of another release refuses what it does not know instead of guessing. Secrets
are mounted, never in here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from reconciler.api.checks import errors_of
from reconciler.api.choices import EngineType
from reconciler.api.document_codec import camel, from_document, to_document
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.schema import CATALOG, POLICY
from reconciler.errors import UserError

MOST_BYTES = 120_000
"""Linux refuses a single environment variable of 128 KiB or more."""

Fields = Mapping[str, tuple[str, Callable[[Any], bool]]]
"""Field -> its description, and its test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobDocument:
    """One attempt, as the driver pod reads it. A field's name in JSON is its own in camel case."""

    version: ClassVar[str]
    """Names the kind of document and its form."""
    catalog: IcebergCatalog
    """The catalog's document."""
    policy: TableLayoutPolicy
    """The policy's document."""
    table: tuple[str, ...]
    """The levels of the table's identifier, the name last."""
    attempt: int
    """Number of this attempt."""
    policy_key: str
    """Key under which the spending is recorded: tables of one key share the budgets."""
    owner: str
    """The value that the table's claim must have."""

    def text(self) -> str:
        """Return one line of JSON. Raises UserError if it does not fit an environment variable."""
        body = {camel(item.name): getattr(self, item.name) for item in fields(self)}
        body["version"] = self.version
        line = json.dumps(body, default=to_document, sort_keys=True, separators=(",", ":"))
        if len(line) > MOST_BYTES:
            raise UserError(
                f"policy {self.policy.name} and its catalog are too large for a job",
                details=(f"Together they take {len(line):,} bytes, at most {MOST_BYTES:,} fit.",),
                do="shorten spec.tables, spec.budgets or spec.jobs.sparkConf",
            )
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument(_JobDocument):
    """One attempt at one plan, as the driver pod reads it."""

    version: ClassVar[str] = "run/v1"
    plan_uri: str
    """Place of the plan in the plan store."""
    plan_digest: str
    """"sha256:" and the hexadecimal hash of the plan's document."""
    plan_id: str
    """The plan's id."""
    action_ids: tuple[str, ...]
    """Ids of the admitted actions, in plan order. If there is none, the run only settles what
    earlier attempts left open."""
    bytes_limit: int | None
    """Bytes that were charged for the whole run, repeated work included; None in a document of an
    older operator, for no limit."""
    cpu_limit_seconds: int | None
    """CPU seconds that the budgets leave for the whole run, repeated work included; None for no
    limit."""
    engine: EngineType
    """Who carries it out: Local, in the pod itself, or Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRun(_JobDocument):
    """One attempt at a recommendation for one table, whose policy has spec.recommend."""

    version: ClassVar[str] = "recommend/v1"
    run_id: str
    """Id of the recommendation's inputs: "r-" and 20 hexadecimal digits."""
    cpu_limit_seconds: int
    """CPU seconds that were reserved; the process ends once it has used them."""


def read_job(text: str) -> RunDocument | RecommendRun:
    """Return the document of a job of either kind; raises as `read_run`."""
    recommends = _object(text).get("version") == RecommendRun.version
    return read_recommend_run(text) if recommends else read_run(text)


def read_run(text: str) -> RunDocument:
    """Return the run document. Raises UserError unless it is complete, of a known version and
    valid."""
    return RunDocument(**_checked(text, RunDocument))


def read_recommend_run(text: str) -> RecommendRun:
    """Return the document of a recommend job; raises as `read_run`."""
    run = RecommendRun(**_checked(text, RecommendRun))
    if run.policy.spec.recommend is None:
        raise _refusal("its policy has no spec.recommend")
    return run


def _object(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        nested = isinstance(error, RecursionError)
        why = "it is nested too deeply" if nested else "it is not valid JSON"
        raise _refusal(why) from error
    if not isinstance(body, dict):
        raise _refusal("it is not a JSON object")
    return body


def _checked(text: str, kind: type[_JobDocument]) -> dict[str, Any]:
    """Return the values of the document's fields, by their names."""
    body, tests = _object(text), _FIELDS[kind]
    version = body.pop("version", None)
    if version != kind.version:
        raise _refusal(f"its version is {version!r}, this driver reads {kind.version}")
    unknown = sorted(body.keys() - tests.keys())
    missing = sorted(tests.keys() - body.keys())
    if unknown or missing:
        wrong = [f"unknown field {name}" for name in unknown] + [f"no {name}" for name in missing]
        raise _refusal("; ".join(wrong))
    for name, (expected, holds) in tests.items():
        if not holds(body[name]):
            raise _refusal(f"{name} is not {expected}")
    read: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in body.items()
    }
    read["catalog"] = _document(body["catalog"], CATALOG)
    read["policy"] = _document(body["policy"], POLICY)
    if "engine" in read:
        read["engine"] = EngineType(read["engine"])
    return {item.name: read[camel(item.name)] for item in fields(kind)}


def _document(body: Any, kind: str) -> Any:
    """Return a nested document, checked by the rules that `validate` applies to files."""
    if not isinstance(body, dict) or body.get("kind") != kind:
        raise _refusal(f"there is no {kind} in its place")
    errors = errors_of(body, kind)
    if errors:
        raise _refusal(f"{kind}: {errors[0].field}: {errors[0].message}")
    return from_document(body)


def _refusal(why: str) -> UserError:
    return UserError(
        f"the run document is not valid: {why}",
        details=("The operator writes it; operator and job image must be of one release.",),
        do="set the job image (spec.jobs.image, or the chart's) to the operator's release",
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_text(item) for item in value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _matches(pattern: str) -> Any:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


_LIMIT = ("a whole number or null", lambda value: value is None or _whole(value))
_COMMON: Fields = {
    "catalog": ("an object", lambda value: isinstance(value, dict)),
    "policy": ("an object", lambda value: isinstance(value, dict)),
    "table": ("a list of names", _texts),
    "attempt": ("a whole number", _whole),
    "policyKey": ("a text", _text),
    "owner": ("a text", _text),
}
_FIELDS: Mapping[type[_JobDocument], Fields] = {
    RunDocument: {
        **_COMMON,
        "planUri": ("a text", _text),
        "planDigest": ("a SHA-256 digest", _matches(r"sha256:[0-9a-f]{64}")),
        "planId": ("a plan id", _matches(r"p-[0-9a-f]{20}")),
        "actionIds": ("a list of action ids", lambda value: value == [] or _texts(value)),
        "bytesLimit": _LIMIT,
        "cpuLimitSeconds": _LIMIT,
        "engine": ("Local or Spark", _matches("Local|Spark")),
    },
    RecommendRun: {
        **_COMMON,
        "runId": ("the id of a recommendation", _matches(r"r-[0-9a-f]{20}")),
        "cpuLimitSeconds": ("a whole number", _whole),
    },
}
