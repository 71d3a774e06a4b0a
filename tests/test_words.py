"""Docs, docstrings, comments and printed sentences use the terms of the field.

The words below are nobody's term for what was meant here: a reader had to guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.sources import PACKAGE, nodes, texts
from tests.test_citations import prose_of
from tests.test_docs import PAGES, ROOT

WORDS = {
    "foretold": "predicted",
    "foretell": "predict",
    "stake": "the possible loss",
    "stakes": "the possible loss",
    "at stake": "what may be lost",
    "played": "simulated, or run",
    "lent": "borrowed",
    "owed": "the debt",
    "told": "reported, or passed",
    "turned": "converted, or rejected",
    "stand for": "represent, or mean",
    "stands for": "represents, or means",
}
"""Word -> the field's term."""
FOUND = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)


def printed(every: Iterable[ast.AST]) -> Iterator[str]:
    """The texts of a module that may be printed: its string constants and parts of f-strings."""
    for node in every:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def test_pages_use_the_terms_of_the_field() -> None:
    found = {
        f"{page.relative_to(ROOT)}: {word}"
        for page in PAGES
        for word in FOUND.findall(page.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_code_uses_the_terms_of_the_field() -> None:
    found: set[str] = set()
    for path, every in nodes().items():
        said = (*prose_of(every, texts()[path]), *printed(every))
        words = (w for text in said for w in FOUND.findall(text))
        found.update(f"{path.relative_to(PACKAGE)}: {word}" for word in words)
    assert found == set()


def test_crds_use_the_terms_of_the_field() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (Path(ROOT) / "crds").glob("*.yaml")]
    assert [word for text in texts for word in FOUND.findall(text)] == []
