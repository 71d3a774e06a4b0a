from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.excerpt import WIDTH, mask, render_problems, width
from reconciler.errors import Problem
from reconciler.format import printable
from tests.said import Said


def render(text: str, line: int, column: int, hint: str = "") -> list[str]:
    problem = Problem("f.yaml", line, column, "spec.a", "is wrong", hint)
    return render_problems([problem], {"f.yaml": text}).split("\n")


def test_the_excerpt_looks_as_documented(said: Said) -> None:
    text = "\n" * 13 + "      mode: WorkloadAwre\n"
    lines = render(text, 14, 13, "A | B. Did you mean A?")
    assert lines[2].index("^") == lines[1].index("WorkloadAwre")
    said("\n".join(lines))


def test_the_caret_stands_under_wide_letters_too() -> None:
    line, below = render("売上: [x, bad]\n", 1, 9)[1:]
    assert width(line[: line.index("bad")]) == below.index("^")


def test_long_lines_are_cut_around_the_caret() -> None:
    line, below = render("a" * 500 + "BAD" + "b" * 500, 1, 501, "hint")[1:]
    assert width(line) <= WIDTH and width(below) <= WIDTH
    assert line[below.index("^") :].startswith("BAD")


def test_a_long_hint_gets_lines_of_its_own() -> None:
    lines = render("a: 1\n", 1, 4, "word " * 60)
    assert len(lines) > 4 and all(width(line) <= WIDTH for line in lines)


def test_a_problem_without_a_place_keeps_its_hint() -> None:
    assert render("", 0, 0, "do this")[1] == "  do this"


def test_credentials_are_masked() -> None:
    assert mask("  token: hunter2") == "  token: ***"
    flow = '{uri: "http://c", s3.secret-access-key: hunter2, x: 1}'
    for line in (flow, "uri: http://me:hunter2@host/path"):
        assert "hunter2" not in mask(line)
    for harmless in ("  secretRef: {name: c}", "  interval: 10m"):
        assert mask(harmless) == harmless


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    assert "\x1b" not in "\n".join(render("a: \x1b[31mred\n", 1, 4))
    assert printable("a\tb\x07") == "a b�"


@given(st.text(max_size=200), st.integers(1, 210), st.text(max_size=200))
def test_any_line_fits_the_page(text: str, column: int, hint: str) -> None:
    lines = render(text, 1, column, hint)
    assert all(width(line) <= WIDTH for line in lines[1:])
    assert all(ord(character) >= 32 for line in lines for character in line)
