"""Block ids: an int column whose value names the leaf of a tree of cuts that a row lies in (Yang et
al., "Qd-tree", sections 3.1 and 3.3), and what a table's properties and snapshots say of them.

The ids of a tree begin at a base that follows from its hash, so that trees share the column without
a table of numbers. An id is believed only in files that a snapshot of ours added which names the
tree: everybody else who writes rows may have copied ids of rows that are different now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.table.cut_tree import MOST_LEAVES, NotATree, Tree, tree_of
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import SnapshotInfo
from reconciler.table.summary_keys import ATTEMPT_ID, BLOCK_TREES
from reconciler.table.values import Kind, Scalar, kind_of

COLUMN = "layout.block-ids.column"
"""Property: field id of the column that we added for ids."""
SINCE = "layout.block-ids.since-sequence"
"""Property: sequence number of the last snapshot without the column."""
TREE = "layout.block-ids.tree."
"""Begin of the property that holds a tree; its key follows."""
SNAPSHOTS = "layout.block-ids.snapshots."
"""Begin of the property that holds the ids of expired snapshots which named the tree."""
METRICS = "write.metadata.metrics.column."
"""Begin of Iceberg's property for what manifests hold of a column."""
KEY_DIGITS = 16
"""Hex digits of a tree's hash that name it in properties and summaries."""
MOST_TREE_BYTES = 64 << 10
"""Most bytes of a tree's property: catalogs keep properties in one document or row."""
MOST_SNAPSHOTS = 1_000
"""Expired snapshots that are remembered for a tree, the latest ones."""
DOC = "Leaf of the layout's tree of cuts; written by layoutctl alone, NULL in other rows."
"""Comment of the column."""


def key_of(tree: Tree) -> str:
    """Return the name of a tree in properties and summaries."""
    return tree.name[:KEY_DIGITS]


def is_key(text: str) -> bool:
    """Whether a text may name a tree."""
    return len(text) == KEY_DIGITS and set(text) <= set("0123456789abcdef")


def base_of(key: str) -> int:
    """Return the id of the first leaf of a tree: 15 bits of its hash above the leaves' 16."""
    return (int(key[:4], 16) & 0x7FFF) * MOST_LEAVES


@dataclass(frozen=True, slots=True)
class BlockTree:
    """A tree whose leaves rows carry."""

    tree: Tree
    """The tree."""
    types: Mapping[int, str]
    """The types of the columns that it cuts, by field id, when its ids were first written."""

    @property
    def text(self) -> str:
        """Return the value of its property."""
        types = {str(one): kind for one, kind in sorted(self.types.items())}
        return json.dumps({"tree": self.tree.text, "types": types}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class BlockIds:
    """What a table says of its block ids."""

    field_id: int
    """Field id of the column."""
    since: int
    """Sequence number of the last snapshot before the column was added."""
    trees: Mapping[str, BlockTree] = field(default_factory=dict)
    """The trees that can be read, by key."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why others cannot be read, by key."""
    proofs: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """The keys of the trees by which all ids are true in the files that a snapshot of ours added,
    by its id."""


def block_ids_of(
    properties: Mapping[str, str], snapshots: Iterable[SnapshotInfo]
) -> BlockIds | None:
    """Return what properties and retained snapshots say; None if the table has no such column."""
    column = _number(properties.get(COLUMN))
    if column is None:
        return None
    trees, unread = dict[str, BlockTree](), dict[str, str]()
    for name, text in properties.items():
        key = name.removeprefix(TREE)
        if name.startswith(TREE) and is_key(key):
            try:
                trees[key] = block_tree_of(key, text)
            except NotATree as error:
                unread[key] = str(error)
    since = _number(properties.get(SINCE))
    return BlockIds(
        column, -1 if since is None else since, trees, unread,
        _remembered(properties) | _named(snapshots),
    )  # fmt: skip


def block_tree_of(key: str, text: str) -> BlockTree:
    """Return the tree of a property's value. Raises NotATree."""
    try:
        body = json.loads(text)
        tree = tree_of(str(body["tree"]))
        types = {int(one): str(kind) for one, kind in body["types"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NotATree):
            raise
        raise NotATree("its property cannot be read") from error
    if key_of(tree) != key:
        raise NotATree("its property holds another tree")
    for cut in tree.cuts:
        if cut.value is not None and cut.field_id in types:
            _require_domain(cut.value, kind_of(types[cut.field_id]))
    return BlockTree(tree, types)


def _require_domain(value: Scalar, kind: Kind | None) -> None:
    """Raise NotATree if a column of this kind has no such value."""
    if kind is Kind.INT:
        holds = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    else:
        holds = isinstance(value, float if kind is Kind.FLOAT else bytes)
    if not holds:
        raise NotATree("a cut is at a value that its column cannot have")


def _named(snapshots: Iterable[SnapshotInfo]) -> dict[int, frozenset[str]]:
    return {
        one.snapshot_id: frozenset(one.summary[BLOCK_TREES].split(","))
        for one in snapshots
        if BLOCK_TREES in one.summary and ATTEMPT_ID in one.summary
    }


def newest(properties: Mapping[str, str], summaries: Iterable[Mapping[str, str]]) -> str | None:
    """Return the key of the tree by which rewrites that follow no tree fill ids: the one that was
    written last, if the table still holds it; None if others have expired the snapshots that say
    so and the table holds several. summaries: of the ancestors of the head, newest first."""
    for summary in summaries:
        if BLOCK_TREES in summary and ATTEMPT_ID in summary:
            key = summary[BLOCK_TREES].split(",")[0]
            return key if TREE + key in properties else None
    held = [name.removeprefix(TREE) for name in properties if name.startswith(TREE)]
    return held[0] if len(held) == 1 and SNAPSHOTS + held[0] in properties else None


def _remembered(properties: Mapping[str, str]) -> dict[int, frozenset[str]]:
    found = dict[int, set[str]]()
    for name, text in properties.items():
        if name.startswith(SNAPSHOTS):
            for one in text.split(","):
                number = _number(one)
                if number is not None:
                    found.setdefault(number, set()).add(name.removeprefix(SNAPSHOTS))
    return {number: frozenset(keys) for number, keys in found.items()}


def remembering(
    properties: Mapping[str, str], expired: Sequence[tuple[int, Mapping[str, str]]]
) -> dict[str, str]:
    """Return the properties to set when snapshots expire, so that what they prove stays known.

    expired: (id, summary) of each, the oldest first. Only trees whose property is there count.
    """
    added = dict[str, list[str]]()
    for number, summary in expired:
        if ATTEMPT_ID in summary:
            for key in summary.get(BLOCK_TREES, "").split(","):
                if TREE + key in properties:
                    added.setdefault(key, []).append(str(number))
    found = {}
    for key, numbers in added.items():
        known = [one for one in properties.get(SNAPSHOTS + key, "").split(",") if one]
        found[SNAPSHOTS + key] = ",".join(dict.fromkeys([*known, *numbers][-MOST_SNAPSHOTS:]))
    return found


def tree_properties(
    properties: Mapping[str, str], schema: Mapping[str, Any], trees: Iterable[Tree]
) -> dict[str, str]:
    """Return the properties that keep those of the trees which the table's do not hold yet.

    schema: in the JSON form of the specification.
    """
    types = primitives_of(schema["fields"])
    return {
        TREE + key_of(tree): BlockTree(tree, {one: types[one] for one in tree.cut_columns}).text
        for tree in trees
        if not holds(properties, tree)
    }


def holds(properties: Mapping[str, str], tree: Tree) -> bool:
    """Whether the properties hold the tree."""
    key = key_of(tree)
    try:
        return block_tree_of(key, properties.get(TREE + key, "")).tree == tree
    except NotATree:
        return False


def primitives_of(fields: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the types of all columns that are not in lists or maps, by field id. fields: of a
    schema or struct, in the JSON form of the specification."""
    found = dict[int, str]()
    for one in fields:
        if isinstance(one["type"], str):
            found[int(one["id"])] = one["type"]
        elif one["type"]["type"] == "struct":
            found |= primitives_of(one["type"]["fields"])
    return found


def hindrance(metadata: TableMetadata, column: str) -> str:
    """Return why the table cannot have block ids in a column of this name, "" if it can."""
    if metadata.format_version < 2:
        return "the table has format version 1, which has no sequence numbers"
    owned = _number(metadata.properties.get(COLUMN))
    own = next((name for name, (number, _) in metadata.tops.items() if number == owned), None)
    if own is None:
        taken = next((one for one in metadata.tops if one.lower() == column.lower()), None)
        if taken is None:
            return ""
        kind = metadata.tops[taken][1]
        return f'the table has a column "{taken}" of type {kind} that layoutctl did not add'
    if own != column:
        return f'the column of its block ids is named "{own}"; name it in blockColumn'
    return _misused(metadata, own)


def _misused(metadata: TableMetadata, own: str) -> str:
    """Return why ids must not be written to the column that we added."""
    number, kind = metadata.tops[own]
    if kind != "int":
        return f'column "{own}" has type {kind} now, and ids are ints'
    if any(f"({number})" in term for terms in metadata.specs.values() for term in terms):
        return f'the table is partitioned by column "{own}"'
    if number in metadata.sorted_columns:
        return f'the table\'s sort order has column "{own}"'
    if number in metadata.identifiers:
        return f'column "{own}" is an identifier field'
    return ""


def owned_column(metadata: TableMetadata) -> int | None:
    """Return the field id of the column that holds our ids, None if none may be written."""
    owned = _number(metadata.properties.get(COLUMN))
    own = next((name for name, (number, _) in metadata.tops.items() if number == owned), None)
    return None if own is None or _misused(metadata, own) else owned


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else None
