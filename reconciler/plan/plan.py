"""Plans: identity, freezing and documents (docs/design/definitions.md#plan).

`planId` covers the table's uuid, the policy's hash and the typed actions in order, with their exact
input files; not the snapshot, the clock or any prediction, so that an append voids no review. The
document around it carries the predictions a reviewer read, and `digest` covers all of it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.identity import hash_inputs
from reconciler.api.version import API_VERSION
from reconciler.errors import InternalError, UserError
from reconciler.plan.actions import action_from_canonical
from reconciler.plan.actions.base import Action
from reconciler.plan.plan_schema import problem
from reconciler.plan.prediction import LARGEST, PREDICTED, Prediction, Total, total
from reconciler.table.filetable import FileTable

KIND = "LayoutPlan"


def canonical_json(value: Any) -> bytes:
    """Return RFC 8785 canonical JSON, with integers from 2^53 on written in full.

    RFC 8785 has no such integers, but what a petabyte table reads in a month is one. Raises
    ValueError for floats, which have no place in an identity, and for what JSON cannot hold.
    """
    _check_plain(value)
    text = _text(value, sort_keys=True)
    if not text.isascii() and max(text) >= "\ud800":
        text = _text(_by_utf16(value), sort_keys=False)
    return text.encode()


def _text(value: Any, *, sort_keys: bool) -> str:
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False)


def _check_plain(value: Any) -> None:
    """Raise ValueError for a value that a canonical document cannot hold."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise ValueError("a canonical document has text as keys only")
            left.extend(item.values())
        elif isinstance(item, list | tuple):
            if set(map(type, item)) != {str}:  # such as the paths of all files of a table
                left.extend(item)
        elif isinstance(item, float):
            raise ValueError("a canonical document holds no floats")
        elif isinstance(item, int):
            if not -LARGEST <= item <= LARGEST:
                raise ValueError(f"a canonical document holds integers of 64 bits, not {item}")
        elif item is not None and not isinstance(item, str):
            raise ValueError(f"a canonical document holds no {type(item).__name__}")


def _by_utf16(value: Any) -> Any:
    """Return the value with keys in the order of RFC 8785, by UTF-16 units.

    It is that of code points, by which the standard library sorts, for text below the surrogates.
    """
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return {key: _by_utf16(value[key]) for key in keys}
    if isinstance(value, list | tuple):
        return [_by_utf16(item) for item in value]
    return value


def policy_hash(policy: TableLayoutPolicy) -> str:
    """Return the SHA-256 in hex over what of the policy determines a plan (`api.identity`)."""
    return hashlib.sha256(canonical_json(hash_inputs(policy))).hexdigest()


def plan_id(table_uuid: str, policy: str, actions: Sequence[Action]) -> str:
    """Return `p-` and 20 hex digits over what a plan does, to which table, under which policy."""
    body = {
        "tableUuid": table_uuid,
        "policyHash": policy,
        "actions": [action.canonical() for action in actions],
    }
    return "p-" + hashlib.sha256(canonical_json(body)).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class DeleteState:
    """The delete load of an action's inputs when it was planned, for those who review it."""

    files: int
    """Number of delete files."""
    position_rows: int
    """Number of rows deleted by position."""
    equality_files: int
    """Number of equality delete files."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action within a plan."""

    id: str
    """Its id within the plan, such as "a01"."""
    action: Action
    """The action."""
    deletes: DeleteState
    """Delete load of its inputs."""
    predicted: Prediction = field(default_factory=Prediction)
    """What is predicted of it."""


@dataclass(frozen=True)
class Plan:
    """A frozen proposal for a table."""

    id: str
    """Hash of the table, the policy's inputs and the actions: "p-" and 20 hexadecimal digits."""
    catalog: str
    """Name of the catalog."""
    table: tuple[str, ...]
    """Levels of the table's identifier, the name last."""
    table_uuid: str
    """UUID of the table."""
    policy_hash: str
    """Hash of the part of the policy that determines a plan."""
    policy: str
    """Name of the policy."""
    base_snapshot_id: int | None
    """The snapshot that the plan was made on; None for an empty table."""
    created: dt.datetime
    """When the plan was made."""
    expires: dt.datetime
    """When the plan must no longer be started."""
    actions: tuple[PlannedAction, ...]
    """The actions in the order of their execution."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What the plan was made from and what it predicts, as a document that is not hashed into the
    id."""

    @property
    def empty(self) -> bool:
        return not self.actions

    @property
    def predicted(self) -> Total:
        return total(item.predicted for item in self.actions)

    @property
    def trees(self) -> dict[str, str]:
        """The text of each tree of cuts that actions name, by its hash."""
        return {tree.name: tree.text for item in self.actions for tree in item.action.trees}

    def document(self) -> dict[str, Any]:
        """The whole plan as a JSON-able document, without its digest."""
        trees = self.trees
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "planId": self.id,
            "catalog": self.catalog,
            "table": list(self.table),
            "tableUuid": self.table_uuid,
            "policyHash": self.policy_hash,
            "policy": self.policy,
            "baseSnapshotId": None if self.base_snapshot_id is None else str(self.base_snapshot_id),
            "createdAt": _iso(self.created),
            "expiresAt": _iso(self.expires),
            "actions": [action_document(item) for item in self.actions],
            **({"trees": trees} if trees else {}),
            "evidence": dict(self.evidence),
        }

    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(canonical_json(self.document())).hexdigest()


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan is made for."""

    catalog: str
    """Name of the catalog."""
    table: tuple[str, ...]
    """Name of the table in the catalog."""
    table_uuid: str
    """UUID of the table, which a table of the same name that is created later does not have."""
    policy_hash: str
    """Hash of the part of the policy that determines a plan."""
    policy: str
    """Name of that policy."""
    base_snapshot_id: int | None
    """Snapshot that the plan is made from; None for an empty table."""


def freeze(
    basis: Basis,
    *,
    created: dt.datetime,
    time_to_live: dt.timedelta,
    actions: Sequence[tuple[Action, Prediction]],
    files: FileTable,
    evidence: Mapping[str, Any],
) -> Plan:
    """A plan over `actions` (with their predictions), in the order given."""
    planned = tuple(
        PlannedAction(f"a{number:02d}", action, _delete_state(action, files), predicted)
        for number, (action, predicted) in enumerate(actions, start=1)
    )
    created = created.replace(microsecond=0)
    return Plan(
        id=plan_id(basis.table_uuid, basis.policy_hash, [action for action, _ in actions]),
        catalog=basis.catalog,
        table=basis.table,
        table_uuid=basis.table_uuid,
        policy_hash=basis.policy_hash,
        policy=basis.policy,
        base_snapshot_id=basis.base_snapshot_id,
        created=created,
        expires=created + time_to_live,
        actions=planned,
        evidence=evidence,
    )


def plan_from_document(body: Any) -> Plan:
    """Return the plan of a document, after comparing its id with its content. Raises UserError when
    the document is not a plan or was edited after it was made."""
    wrong = problem(body)
    if wrong:
        raise _not_a_plan(wrong)
    try:
        plan = _parse(body)
        plan.digest()  # raises for floats and for integers that JSON cannot hold
        actual = plan_id(plan.table_uuid, plan.policy_hash, [item.action for item in plan.actions])
    except (ValueError, OverflowError) as error:
        raise _not_a_plan(str(error)) from error
    if actual != plan.id:
        raise UserError(
            f"plan {plan.id} was changed after it was made: its actions hash to {actual}",
            details=("A frozen plan must not change after its review.",),
            do="make a new one with: layoutctl plan TABLE --out FILE",
        )
    return plan


def stored_form(plan: Plan) -> bytes:
    """Return the canonical JSON of a plan that is about to be stored or saved.

    It is read back first, as whoever carries the plan out reads it: a plan that would then be
    refused raises InternalError, and nothing is stored.
    """
    try:
        body = canonical_json(plan.document())
        again = parse_plan(body.decode())[0]
        same = canonical_json(again.document()) == body
    except UserError as error:
        same, why = False, "; ".join((error.what, *error.details))
    except ValueError as error:
        same, why = False, str(error)
    else:
        why = "its document is read as another plan"
    if not same:
        raise InternalError(
            f"plan {plan.id} of {'.'.join(plan.table)} cannot be read back, so it was not stored",
            details=(why,),
            do="report this with the detail above; the table was left as it was",
        )
    return body


def parse_plan(text: str) -> tuple[Plan, str | None]:
    """A plan from its JSON text, and the digest that the document names. Raises UserError."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        nested = isinstance(error, RecursionError)
        why = "it is nested too deeply" if nested else f"it is not valid JSON: {error}"
        raise _not_a_plan(why) from error
    return plan_from_document(body), body.get("digest")


def _not_a_plan(why: str) -> UserError:
    return UserError(
        "this is not a plan document",
        details=(why,),
        do="write one with: layoutctl plan TABLE --out FILE",
    )


def _parse(body: Any) -> Plan:
    snapshot = body["baseSnapshotId"]
    return Plan(
        id=body["planId"],
        catalog=body["catalog"],
        table=tuple(body["table"]),
        table_uuid=body["tableUuid"],
        policy_hash=body["policyHash"],
        policy=body["policy"],
        base_snapshot_id=None if snapshot is None else int(snapshot),
        created=_parse_time(body["createdAt"]),
        expires=_parse_time(body["expiresAt"]),
        actions=tuple(_parse_action(item, body.get("trees", {})) for item in body["actions"]),
        evidence=dict(body["evidence"]),
    )


def action_document(item: PlannedAction) -> dict[str, Any]:
    """An action as plan documents hold it."""
    return {
        "id": item.id,
        **item.action.canonical(),
        "deletes": {
            "files": item.deletes.files,
            "positionRows": item.deletes.position_rows,
            "equalityFiles": item.deletes.equality_files,
        },
        PREDICTED: item.predicted.document(),
    }


def _parse_action(body: Any, trees: Mapping[str, str]) -> PlannedAction:
    """trees: the text of each tree that actions name. Raises ValueError if one is missing or is
    another."""
    deletes = body["deletes"]
    names = [*([body["tree"]] if "tree" in body else []), *body.get("trees", [])]
    for name in names:
        if name not in trees:
            raise ValueError(f"the tree {name[:12]} of action {body['id']} is missing")
    texts: dict[str, Any] = {"tree": trees[body["tree"]]} if "tree" in body else {}
    if "trees" in body:
        texts["trees"] = [trees[name] for name in body["trees"]]
    action = action_from_canonical({**body, **texts})
    for tree, name in zip(action.trees, names, strict=True):
        if tree.name != name:
            raise ValueError(f"the tree {name[:12]} of action {body['id']} is another one")
    return PlannedAction(
        body["id"],
        action,
        DeleteState(deletes["files"], deletes["positionRows"], deletes["equalityFiles"]),
        Prediction.from_document(body[PREDICTED]),
    )


def _delete_state(action: Action, files: FileTable) -> DeleteState:
    rows = [files.row_of[path] for path in action.inputs if path in files.row_of]
    return DeleteState(
        int(files.delete_files[rows].sum()),
        int(files.position_deleted[rows].sum()),
        int(files.equality_deletes[rows].sum()),
    )


def _iso(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_time(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
