"""Tests assert reasons, numbers and structure; wording is in golden files (tests/said.py).

This finds texts of three words or more that tests compare with something: in an `assert`, or as
`match` of `pytest.raises`, also by way of a parameter or the variable of a loop. SQL, and sort
orders as SQL spells them, are values and not wording.
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
    "/w/t/metadata/m0.avro (Read-only file system)": "the operating system's error, by Java",
    "/w/t/data/a.parquet (Permission denied)": "the operating system's error, by Java",
    "Mkdirs failed to create file:/w/t/data/layout-p (exists=false)": "Hadoop's error",
    "async for chunk, resource_version in fetching.fetch_objs(": "a line of kopf's source",
}
"""Text -> why a test compares with the text itself: all are contracts of other programs."""
LIKE_COMPARISONS = ("startswith", "endswith", "match", "search", "fullmatch")
SQL = re.compile(
    r"\b(SELECT|INSERT|MERGE|UPDATE|DELETE FROM|CREATE|BETWEEN|CAST|ORDER BY|AND|IS NAN)\b"
    r"|\b(asc|desc)\b|\bIN \(|\bVERSION AS OF\b"
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


def operands(node: ast.AST) -> list[ast.AST]:
    """What an assertion compares: in an `assert`, or as `match` of `pytest.raises`."""
    if isinstance(node, ast.Assert):
        return list(compared(node.test))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "raises":
        return [keyword.value for keyword in node.keywords if keyword.arg == "match"]
    return []


def columns(rows: ast.AST, width: int) -> Iterator[list[ast.AST]]:
    """The values that each name of a loop or of a parametrized test takes."""
    items = rows.elts if isinstance(rows, (ast.Tuple, ast.List)) else []
    if width == 1:
        yield list(items)
        return
    full = [item.elts for item in items if isinstance(item, ast.Tuple) and len(item.elts) == width]
    yield from (list(column) for column in zip(*full, strict=True))


def given(node: ast.AST) -> Iterator[tuple[str, list[ast.AST]]]:
    """Names that take one of several values: of a loop, or of `pytest.mark.parametrize`."""
    if isinstance(node, (ast.For, ast.comprehension)):
        target, rows = node.target, node.iter
        names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize":
        named, rows = node.args[:2]
        names = [part.value for part in ast.walk(named) if isinstance(part, ast.Constant)]
    else:
        return
    yield from zip(names, columns(rows, len(names)), strict=False)


def asserted(source: str) -> list[str]:
    """Return the texts of three words or more that tests in the source assert."""
    found: dict[tuple[int, int], str] = {}
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        places = [place for node in nodes for place in operands(node)]
        named = {place.id for place in places if isinstance(place, ast.Name)}
        values = [item for node in nodes for name, items in given(node) if name in named
                  for item in items]  # fmt: skip
        for part in (part for place in (*places, *values) for part in ast.walk(place)):
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

@pytest.mark.parametrize(("given", "text"), [(1, "the plan is stale"), (2, "no")])
def test_b(given, text):
    for said in ("a line was skipped", text):
        assert said in run(given)
    assert text in run(given)
"""
    assert len(asserted(source)) == 5
