"""The input of a driver pod: one JSON document in its environment, written by the operator.

It names the plan by place and digest, the admitted actions and what the budgets leave; it contains
the policy and the catalog as they were then. A recommend job has a document of its own. Versioned
and strict: a driver of another release refuses what it does not know instead of guessing. Secrets
are mounted, never in here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.checks import errors_of
from reconciler.api.choices import EngineType
from reconciler.api.document_codec import from_document, to_document
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.schema import CATALOG, POLICY
from reconciler.errors import UserError

VERSION = "run/v1"
RECOMMEND_VERSION = "recommend/v1"
MOST_BYTES = 120_000
"""Linux refuses a single environment variable of 128 KiB or more."""

Fields = Mapping[str, tuple[str, Any]]
"""Field -> its description, and its test."""


@dataclass(frozen=True, slots=True)
class RunDocument:
    """One attempt at one plan, as the driver pod reads it."""

    catalog: IcebergCatalog
    """The catalog's document."""
    policy: TableLayoutPolicy
    """The policy's document."""
    table: tuple[str, ...]
    """The levels of the table's identifier, the name last."""
    plan_uri: str
    """Place of the plan in the plan store."""
    plan_digest: str
    """"sha256:" and the hexadecimal hash of the plan's document."""
    plan_id: str
    """The plan's id."""
    attempt: int
    """Number of this attempt at the plan."""
    action_ids: tuple[str, ...]
    """Ids of the admitted actions, in plan order. If there is none, the run only settles what
    earlier attempts left open."""
    bytes_limit: int | None
    """Bytes that were charged for the whole run, repeated work included; None in a document of an
    older operator, for no limit."""
    cpu_limit_seconds: int | None
    """CPU seconds that the budgets leave for the whole run, repeated work included; None for no
    limit."""
    policy_key: str
    """Key under which the spending is recorded: tables of one key share the budgets."""
    owner: str
    """The value that the table's claim must have."""
    engine: EngineType
    """Who carries it out: Local, in the pod itself, or Spark."""

    def text(self) -> str:
        """Return one line of JSON. Raises UserError if it does not fit an environment variable."""
        body = {
            "version": VERSION,
            "catalog": to_document(self.catalog),
            "policy": to_document(self.policy),
            "table": list(self.table),
            "planUri": self.plan_uri,
            "planDigest": self.plan_digest,
            "planId": self.plan_id,
            "attempt": self.attempt,
            "actionIds": list(self.action_ids),
            "bytesLimit": self.bytes_limit,
            "cpuLimitSeconds": self.cpu_limit_seconds,
            "policyKey": self.policy_key,
            "owner": self.owner,
            "engine": self.engine.value,
        }
        return _line(body, self.policy)


@dataclass(frozen=True, slots=True)
class RecommendRun:
    """One attempt at a recommendation for one table, as the driver pod reads it."""

    catalog: IcebergCatalog
    """The catalog's document."""
    policy: TableLayoutPolicy
    """The policy's document, which has spec.recommend."""
    table: tuple[str, ...]
    """The levels of the table's identifier, the name last."""
    run_id: str
    """Id of the recommendation's inputs: "r-" and 20 hexadecimal digits."""
    attempt: int
    """Number of this attempt at the recommendation."""
    cpu_limit_seconds: int
    """CPU seconds that were reserved; the process ends once it has used them."""
    policy_key: str
    """Key under which the spending is recorded: tables of one key share the budgets."""
    owner: str
    """The value that the table's claim must have."""

    def text(self) -> str:
        """Return one line of JSON. Raises UserError if it does not fit an environment variable."""
        body = {
            "version": RECOMMEND_VERSION,
            "catalog": to_document(self.catalog),
            "policy": to_document(self.policy),
            "table": list(self.table),
            "runId": self.run_id,
            "attempt": self.attempt,
            "cpuLimitSeconds": self.cpu_limit_seconds,
            "policyKey": self.policy_key,
            "owner": self.owner,
        }
        return _line(body, self.policy)


def _line(body: Mapping[str, Any], policy: TableLayoutPolicy) -> str:
    line = json.dumps(body, sort_keys=True, separators=(",", ":"))
    if len(line) > MOST_BYTES:
        raise UserError(
            f"policy {policy.name} and its catalog are too large for a job",
            details=(f"Together they take {len(line):,} bytes, at most {MOST_BYTES:,} fit.",),
            do="shorten spec.tables, spec.budgets or spec.jobs.sparkConf",
        )
    return line


def read_job(text: str) -> RunDocument | RecommendRun:
    """Return the document of a job of either kind; raises as `read_run`."""
    version = _object(text).get("version")
    return read_recommend_run(text) if version == RECOMMEND_VERSION else read_run(text)


def _object(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        nested = isinstance(error, RecursionError)
        why = "it is nested too deeply" if nested else "it is not valid JSON"
        raise _refusal(why) from error
    if not isinstance(body, dict):
        raise _refusal("it is not a JSON object")
    return body


def _checked(text: str, version: str, fields: Fields) -> Mapping[str, Any]:
    body = _object(text)
    if body.get("version") != version:
        raise _refusal(f"its version is {body.get('version')!r}, this driver reads {version}")
    unknown = sorted(body.keys() - fields.keys())
    missing = sorted(fields.keys() - body.keys())
    if unknown or missing:
        wrong = [f"unknown field {name}" for name in unknown] + [f"no {name}" for name in missing]
        raise _refusal("; ".join(wrong))
    for name, (expected, holds) in fields.items():
        if not holds(body[name]):
            raise _refusal(f"{name} is not {expected}")
    return body


def read_run(text: str) -> RunDocument:
    """Return the run document. Raises UserError unless it is complete, of a known version and
    valid."""
    body = _checked(text, VERSION, _FIELDS)
    catalog, policy = _document(body["catalog"], CATALOG), _document(body["policy"], POLICY)
    assert isinstance(catalog, IcebergCatalog) and isinstance(policy, TableLayoutPolicy)
    return RunDocument(
        catalog=catalog,
        policy=policy,
        table=tuple(body["table"]),
        plan_uri=body["planUri"],
        plan_digest=body["planDigest"],
        plan_id=body["planId"],
        attempt=body["attempt"],
        action_ids=tuple(body["actionIds"]),
        bytes_limit=body["bytesLimit"],
        cpu_limit_seconds=body["cpuLimitSeconds"],
        policy_key=body["policyKey"],
        owner=body["owner"],
        engine=EngineType(body["engine"]),
    )


def read_recommend_run(text: str) -> RecommendRun:
    """Return the document of a recommend job; raises as `read_run`."""
    body = _checked(text, RECOMMEND_VERSION, _RECOMMEND_FIELDS)
    catalog, policy = _document(body["catalog"], CATALOG), _document(body["policy"], POLICY)
    assert isinstance(catalog, IcebergCatalog) and isinstance(policy, TableLayoutPolicy)
    if policy.spec.recommend is None:
        raise _refusal("its policy has no spec.recommend")
    return RecommendRun(
        catalog=catalog,
        policy=policy,
        table=tuple(body["table"]),
        run_id=body["runId"],
        attempt=body["attempt"],
        cpu_limit_seconds=body["cpuLimitSeconds"],
        policy_key=body["policyKey"],
        owner=body["owner"],
    )


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
_FIELDS: Fields = {
    **_COMMON,
    "version": (VERSION, _text),
    "planUri": ("a text", _text),
    "planDigest": ("a SHA-256 digest", _matches(r"sha256:[0-9a-f]{64}")),
    "planId": ("a plan id", _matches(r"p-[0-9a-f]{20}")),
    "actionIds": ("a list of action ids", lambda value: value == [] or _texts(value)),
    "bytesLimit": _LIMIT,
    "cpuLimitSeconds": _LIMIT,
    "engine": ("Local or Spark", _matches("Local|Spark")),
}
_RECOMMEND_FIELDS: Fields = {
    **_COMMON,
    "version": (RECOMMEND_VERSION, _text),
    "runId": ("the id of a recommendation", _matches(r"r-[0-9a-f]{20}")),
    "cpuLimitSeconds": ("a whole number", _whole),
}
