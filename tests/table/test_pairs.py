"""The text of a tree that is cut by conditions between columns, and what is no such tree."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from reconciler.table.cut_tree import PREFIX, Cut, NotATree, made, tree_of
from reconciler.table.pairs import Pair, pair_of

PAIRS = (Pair(2, "less", 5), Pair(3, "equals", 4))
NODE = (Cut(-2, 1), None, (Cut(2, 7), None, None))
TREE = made(NODE, [0, 3, 0], PAIRS)


def _packed(version: int, body: dict[str, Any]) -> str:
    packed = zlib.compress(json.dumps(body).encode())
    return f"{PREFIX}{version}:{base64.b64encode(packed).decode()}"


def _body(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text.split(":")[2])))
    return found


def test_a_tree_has_the_pairs_that_it_cuts_by_and_an_earlier_release_refuses_it() -> None:
    assert TREE.pairs == PAIRS[1:]
    assert TREE.columns == (2, 3, 4) and TREE.cut_columns == (2, 3, 4)
    assert tree_of(TREE.text) == TREE and tree_of(TREE.text).pairs == TREE.pairs
    assert TREE.text.startswith(f"{PREFIX}2:")
    plain = made((Cut(2, 7), None, None), [0, 3], PAIRS)
    assert plain.text.startswith(f"{PREFIX}1:") and plain.columns == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": []},
        {"pairs": [[3, "equals", 4], [3, "equals", 4]]},
        {"pairs": [[3, "equals", 3]]},
        {"pairs": [[3, "greater", 4]]},
        {"pairs": [[0, "equals", 4]]},
        {"pairs": [[3, "equals"]]},
        {"pairs": [[3, "equals", "x"]]},
        {"pairs": [[3, "equals", 4], [2, "less", 5]]},
        {"pairs": 5},
        {"cuts": [[-1, 2, 0], [2, 7, 0]]},
        {"inner": [0, -1, 0]},
        {"inner": []},
        {"nodes": [0]},
    ],
)
def test_a_forged_tree_is_refused(change: dict[str, Any]) -> None:
    body = _body(TREE.text)
    assert tree_of(_packed(2, body)) == TREE
    with pytest.raises(NotATree):
        tree_of(_packed(2, body | change))


def test_a_tree_of_another_version_than_its_cuts_is_refused() -> None:
    with pytest.raises(NotATree):
        tree_of(_packed(1, _body(TREE.text)))
    with pytest.raises(NotATree):
        tree_of(_packed(2, _body(made((Cut(2, 7), None, None), [0, 3]).text)))


@pytest.mark.parametrize("at", range(0, len(TREE.text), 3))
def test_a_truncated_tree_is_refused(at: int) -> None:
    with pytest.raises(NotATree):
        tree_of(TREE.text[:at])


def test_only_what_predicates_write_is_a_pair() -> None:
    assert pair_of(2, PAIRS[0].transform) == PAIRS[0]
    for text in ("identity", "bucket[5]", "less", "less[x]", "less[5]]", "equals[-1]"):
        assert pair_of(2, text) is None
