"""Tests assert reasons, numbers and structure; wording is in golden files (tests/said.py).

This finds texts of three words or more that tests compare with something: in an `assert`, or as
`match` of `pytest.raises`. SQL, and sort orders as SQL spells them, are values and not wording.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
KEPT = {
    "# yaml-language-server: $schema=": "editors look for this comment",
    "head.repo.full_name == github.repository": "an expression that GitHub evaluates",
    "Exception while sending command": "py4j logs it",
    "status unknown for quota": "the API server answers it",
    "async for chunk, resource_version in fetching.fetch_objs(": "a line of kopf's source",
}
"""Text -> why a test compares with the text itself: all are contracts of other programs."""
LIKE_COMPARISONS = ("startswith", "endswith", "match", "search", "fullmatch")
SQL = re.compile(
    r"\b(SELECT|INSERT|MERGE|UPDATE|DELETE FROM|CREATE|BETWEEN|CAST|ORDER BY|VERSION AS OF)\b"
    r"|\b(asc|desc)\b|\bIN \("
)


def is_prose(text: str) -> bool:
    words = re.findall(r"[A-Za-z]{2,}", text)
    return "\n" not in text and len(words) > 2 and text.count(" ") > 1 and not SQL.search(text)


def compared(node: ast.AST) -> Iterator[ast.AST]:
    """The operands of comparisons, and the arguments of startswith and the like."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare):
            yield from (part.left, *part.comparators)
        elif isinstance(part, ast.Call) and getattr(part.func, "attr", "") in LIKE_COMPARISONS:
            yield from part.args


def asserted(source: str) -> list[str]:
    """Return the texts of three words or more that tests in the source assert."""
    found: dict[tuple[int, int], str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            places = list(compared(node.test))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = node.keywords if node.func.attr == "raises" else ()
            places = [keyword.value for keyword in given if keyword.arg == "match"]
        else:
            continue
        for part in (part for place in places for part in ast.walk(place)):
            value = part.value if isinstance(part, ast.Constant) else None
            if isinstance(value, str) and is_prose(value):
                found[part.lineno, part.col_offset] = value
    return list(found.values())


def test_no_test_asserts_wording_outside_of_golden_files() -> None:
    files = {path: asserted(path.read_text(encoding="utf-8")) for path in HERE.rglob("test_*.py")}
    found = {text: path.relative_to(HERE) for path, texts in files.items() for text in texts}
    wording = {text: path for text, path in found.items() if text not in KEPT}
    assert not wording, "use the fixture `said`, or assert a reason or a number"
    assert set(KEPT) <= set(found)


def test_wording_is_recognised() -> None:
    source = """
def test_a():
    assert "the table is damaged" in text and text.startswith("error: no such file")
    assert reason == "NotPrunable" and sql == "SELECT a FROM b WHERE c"
    with pytest.raises(UserError, match="the column does not exist"):
        run("this is an argument")
"""
    assert len(asserted(source)) == 3
