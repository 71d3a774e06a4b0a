"""Reading YAML: positions, traps, and files made to break a reader."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.source import Unclear, document_of, parse_yaml, show_path, split_lines
from tests.examples import examples
from tests.said import Said


def value_of(text: str) -> object:
    (document,), error = parse_yaml(text, "f")
    assert error is None
    assert not document.problems
    return document.value


def test_every_value_knows_its_line_and_column() -> None:
    (document,), _ = parse_yaml("a:\n  - b: 1\n    c: [x, 'y']\n", "f")
    place = document.positions[("a", 0, "c", 1)]
    assert (place.line, place.column, place.text, place.plain) == (3, 12, "y", False)
    assert document.positions[("a", 0, "b")].key_column == 5


@pytest.mark.parametrize("text", ["y", "Y", "n", "010", "0x1F", "1_000", "12:30:45", "0b1"])
def test_scalars_that_tools_read_differently_are_unclear(text: str) -> None:
    assert isinstance(value_of(text), Unclear)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'y'", "y"),
        ("!!str 010", "010"),
        ("2026-11-01", "2026-11-01"),
        ("None", "None"),
        ("~", None),
        ("on", True),
        ("-7", -7),
        ("1.5", 1.5),
        ("500Gi", "500Gi"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert value_of(text) == value


def test_a_duplicate_key_names_the_first_line_and_keeps_the_first_value(said: Said) -> None:
    (document,), _ = parse_yaml("a: 1\nb: 2\na: {c: 3}\n", "f")
    assert document.value == {"a": 1, "b": 2}
    (problem,) = document.problems
    assert (problem.line, problem.field) == (3, "a")
    said(problem.hint)


def test_merge_keys_yield_to_what_is_written_out_and_keep_positions() -> None:
    text = "base: &b {x: 1, y: {z: 2}}\nother: &o {x: 5, w: 6}\nit: {<<: [*b, *o], x: 3}\n"
    (document,), _ = parse_yaml(text, "f")
    assert document.value["it"] == {"x": 3, "y": {"z": 2}, "w": 6}
    assert document.positions[("it", "y", "z")].line == 1
    assert document.positions[("it", "x")].line == 3
    assert document.positions[("it", "w")].line == 2


def test_several_documents_and_empty_ones() -> None:
    documents, error = parse_yaml("a: 1\n---\n---\nb: 2\n...\n", "f")
    assert [document.value for document in documents] == [{"a": 1}, None, {"b": 2}]
    assert error is None
    assert documents[2].line == 4


def test_documents_before_a_syntax_error_are_read(said: Said) -> None:
    documents, error = parse_yaml("a: 1\n---\nb: [\n", "f")
    assert [document.value for document in documents] == [{"a": 1}]
    assert error is not None and error.line >= 3
    said(error.message)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        "a: *b\n",
        "a: &a [*a]\n",
        "? [a]\n: 1\n",
        "a: {<<: 3}\n",
        "a: \x00\n",
        "\ta: 1\n",
        "a: %x\n",
        "{a: 1",
        "%YAML 9.0\n---\na: 1",
    ],
    ids=[
        "flow", "block", "anchor", "cycle", "key", "merge", "control", "tab", "percent", "open",
        "version",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_problem(text: str, said: Said) -> None:
    _, error = parse_yaml(text, "f")
    assert error is not None
    said(error.message)


def test_aliases_that_multiply_are_stopped(said: Said) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    _, error = parse_yaml("\n".join(lines), "f")
    assert error is not None
    said(error.message)


def test_aliases_that_nest_are_stopped(said: Said) -> None:
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 5000))]
    _, error = parse_yaml("\n".join(lines), "f")
    assert error is not None
    said(error.message)


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!!binary", "!!set", "!mine"])
def test_tags_that_build_objects_are_refused(tag: str) -> None:
    (document,), _ = parse_yaml(f"a: {tag} x\n", "f")
    assert ["not allowed" in problem.message for problem in document.problems] == [True]


def test_a_value_that_nests_too_deeply_or_holds_too_much_is_refused(said: Said) -> None:
    deep: object = "x"
    for _ in range(2_000):
        deep = [deep]
    for value in (deep, ["x"] * 60_000):
        _, error = document_of(value, "f")
        assert error is not None
        said(error.message)


def test_paths_are_shown_as_people_write_them() -> None:
    path = ("spec", "properties", "s3.endpoint", 0, "a-b")
    assert show_path(path) == 'spec.properties["s3.endpoint"][0].a-b'


def test_lines_are_counted_as_yaml_counts_them() -> None:
    text = "a: 1\r\nb: 2\rc: 3\nd: [\n"
    _, error = parse_yaml("a: 1\r\nb: 2\rc: 3\nd: ]\n", "f")
    assert error is not None and error.line == 4
    assert split_lines(text)[3] == "d: ["


keys = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=2, max_size=6).filter(
    lambda word: word not in ("no", "on", "yes", "off", "null", "true", "false")
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.text(max_size=20).filter(lambda text: text not in tuple("yYnN")),
)
trees = st.recursive(
    scalars,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(keys, children, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(60), deadline=None)
@given(trees)
def test_what_pyyaml_writes_reads_as_pyyaml_reads_it(tree: object) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True)
    assert value_of(text) == yaml.safe_load(text)


@settings(max_examples=examples(150), deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\n \t0159.~<yn\x00é売", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    documents, error = parse_yaml(text, "f")
    for problem in [*(p for d in documents for p in d.problems), *([error] if error else [])]:
        assert problem.message
