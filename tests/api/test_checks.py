"""Mutated documents: the checks never fail themselves, and judge structure as plain JSON Schema."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.check_query import refused
from reconciler.api.checks import broken_paths, check, errors_of
from reconciler.api.cross_checks import cross_checks, sight
from reconciler.api.document_codec import from_document, to_document
from reconciler.api.source import RawDocument, Unclear, parse_yaml
from reconciler.api.structure import structural_findings
from reconciler.api.support import ignored_of
from reconciler.errors import Problem
from tests.api.corpus_reader import cases
from tests.api.plain_schema import plain_validator, without_nulls
from tests.examples import examples
from tests.mutated import places
from tests.said import Said

GOOD = {case.name: yaml.safe_load(case.path.read_text(encoding="utf-8")) for case in cases("good")}


LIST_MAPS = (("budgets",), ("sources",))
"""Lists whose items differ by name, of which JSON Schema knows nothing."""

garbage = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(
        ["10m", "1h", "0s", "Auto", "512Mi", "1.5", "Keep", "Declared", "Hilbert", "Manual", "a.b"]
    ),
    st.just(Unclear("y", "a boolean to some YAML tools")),
    st.lists(st.sampled_from(["a", "a", "b", 1, None]), max_size=3),
    st.dictionaries(st.sampled_from(["name", "mode", "x", ""]), st.sampled_from(["a", 1, None])),
    st.none(),
)


@st.composite
def mutated(draw: Any) -> tuple[str, Any]:
    body = copy.deepcopy(GOOD[draw(st.sampled_from(sorted(GOOD)))])
    kind = body["kind"]
    for _ in range(draw(st.integers(1, 3))):
        candidates = [place for place in places(body)[1:] if place[0] not in ("kind", "status")]
        *parents, last = draw(st.sampled_from(candidates))
        target = body
        for part in parents:
            target = target[part]
        action = draw(st.sampled_from(["replace", "delete", "add"]))
        if action == "replace":
            target[last] = draw(garbage)
        elif action == "delete":
            del target[last]
        elif isinstance(target, dict):
            target[draw(st.sampled_from(["keys", "per", "bogus", "name", "fields"]))] = draw(
                garbage
            )
    return kind, body


@settings(max_examples=examples(250), deadline=None)
@given(mutated())
def test_structure_is_judged_as_plain_json_schema_does(case: tuple[str, Any]) -> None:
    kind, body = case
    document = RawDocument("f", 1, body)
    repeated_or_worse = [f for f in structural_findings(document, kind) if not _unknown(f.message)]
    theirs = plain_validator(kind).is_valid(without_nulls(body))
    map_keys = [f for f in repeated_or_worse if f.path[-2:-1] in LIST_MAPS and "twice" in f.message]
    assert (len(repeated_or_worse) > len(map_keys)) == (not theirs), repeated_or_worse
    problems = check(document, kind)
    assert not cross_checks([sight(document, kind)])
    ignored_of(kind, body, broken_paths(document, kind))
    if not [problem for problem in problems if problem.severity == "error"]:
        value = from_document(without_nulls(body))
        assert from_document(to_document(value)) == value


def _written(value: Any) -> Any:
    """The value with scalars that JSON and every version of YAML write alike."""
    if isinstance(value, dict):
        return {str(key): _written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_written(item) for item in value]
    if isinstance(value, float):
        return int(value) % 1000 + 0.5 if abs(value) < 1e300 else 0.5
    text = value.text if isinstance(value, Unclear) else value
    return text.encode("ascii", "replace").decode() if isinstance(text, str) else text


@settings(max_examples=examples(150), deadline=None)
@given(mutated())
def test_a_value_is_refused_for_what_its_text_in_a_file_would_be(case: tuple[str, Any]) -> None:
    kind, body = case[0], _written(case[1])
    (document,), _ = parse_yaml(json.dumps(body).replace("\x7f", " "), kind)
    theirs = [one for one in check(document, kind) if one.severity == "error"]
    ours = errors_of(document.value, kind)
    assert [(p.field, p.message, p.hint) for p in ours] == [
        (p.field, p.message, p.hint) for p in theirs
    ]


def _unknown(message: str) -> bool:
    return message.startswith("is not a field of")


def problems_of(spec: str) -> list[Problem]:
    head = (
        "apiVersion: layout.lakehouse.dev/v1alpha1\nkind: TableLayoutPolicy\nmetadata: {name: p}\n"
    )
    text = head + "spec:\n  catalogRef: {name: w}\n  tables: {include: [a.b]}\n  " + spec
    (document,), _ = parse_yaml(text, "f")
    return check(document, "TableLayoutPolicy")


def hints(spec: str) -> list[str]:
    return [problem.hint for problem in problems_of(spec)]


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("interval: 7d", "168h"),
        ("interval: 10 minutes", "10m"),
        ("layout: {files: {targetSize: 512MB}}", "512Mi"),
        ("layout: {files: {targetSize: 1.5Gi}}", "1536Mi"),
        ("layout: {files: {targetSize: 512mi}}", "512Mi"),
        ("layout: {files: {targetSize: auto}}", "Auto"),
        ("objectives: {maxScanAmplification: 1.5}", '"1.5"'),
        ("layout: {clustering: {mode: workloadaware}}", "WorkloadAware"),
        ("recluster: {agressiveness: Balanced}", "aggressiveness"),
        ("targetSize: Auto", "spec.layout.files"),
        ("layout: {clustering: {mode: Declared, keys: [yes]}}", '"yes"'),
        ("layout: {clustering: {mode: Declared, keys: l_shipdate}}", '["l_shipdate"]'),
        ("suspend: 'no'", "true | false"),
    ],
)
def test_hints_say_what_was_meant(spec: str, meant: str, said: Said) -> None:
    (found,) = hints(spec)
    assert meant in found
    said(found)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("approval: {mode: Auto, approvedPlans: [p-3f9a1c0b77de4c21a0be]}", ["approval.mode"]),
        ("approval: {mode: Automatic}\n  budgets: 5", ["budgets"]),
        ("approval: {mode: Automatic}\n  budgts: []", ["budgts"]),
        ("approval: [x]", ["approval"]),
        ("layout: {clustering: {mode: Declard, applyToWrites: true}}", ["layout.clustering.mode"]),
        ("layout: {clustering: {mode: Declared, key: [a]}}", ["layout.clustering.key"]),
        ("layout: {clustering: {mode: Declared, keys: [y, y]}}",
         ["layout.clustering.keys[0]", "layout.clustering.keys[1]"]),
        ("layout: {clustering: {mode: Declared, curve: Hilbert, keys: a}}",
         ["layout.clustering.keys"]),
        ("budgets: [{name: a, pre: 1h, maxCpuTime: 1h}]", ["budgets[0].pre"]),
        ("budgets: [{name: a, per: 1h, maxCpuTme: 1h}]", ["budgets[0].maxCpuTme"]),
        ("budgets: [{name: a, schedule: never, duration: 1h, maxCpuTime: 1h}]",
         ["budgets[0].schedule"]),
        ("approval: {mode: Automatic, mode: Manual, approvedPlans: []}", ["approval.mode"]),
    ],
)  # fmt: skip
def test_a_rule_whose_input_is_broken_adds_nothing(spec: str, fields: list[str]) -> None:
    assert [problem.field for problem in problems_of(spec)] == [f"spec.{name}" for name in fields]


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("approval: {mode: Automatic, planTTL: x, x: 1}", ["mode", "planTTL", "x"]),
        ("approval: {mode: Automatic, approvedPlans: [1]}\n  budgets: []",
         ["mode", "mode", "approvedPlans[0]"]),
        ("budgets: [{per: 1d, schedule: '0 8 * * *', duration: 1h, maxCpuTime: x}]",
         ["name", "per", "per", "maxCpuTime"]),
        ("budgets: [{name: a, per: x, timeZone: Europe/Nowhere, pre: 1, maxCpuTime: 1h}]",
         ["per", "timeZone", "timeZone", "pre"]),
        ("layout: {clustering: {mode: Declard, curve: Hilbert, keys: [a]}}", ["mode", "curve"]),
        ("layout: {clustering: {mode: Declared, curve: Zigzag}}", ["keys", "curve"]),
        ("budgets: [{name: a, per: 1h}, {name: b, per: x, maxCpuTime: 1h}, 5]",
         ["maxRewriteBytes", "per", "budgets[2]"]),
    ],
)  # fmt: skip
def test_a_fault_hides_only_what_reads_it(spec: str, fields: list[str]) -> None:
    found = [problem.field.rpartition(".")[2] for problem in problems_of(spec)]
    assert sorted(found) == sorted(fields)


def test_too_many_budgets_are_each_judged(said: Said) -> None:
    many = ", ".join(f"{{name: b{number}, per: 1h}}" for number in range(200))
    found = problems_of(f"budgets: [{many}]")
    (of_the_list,) = (problem for problem in found if problem.field == "spec.budgets")
    of_each = {problem.message for problem in found if problem is not of_the_list}
    assert len(found) == 201
    said("\n".join([of_the_list.message, *of_each]))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT 1 FROM {table} WHERE amount < 0", ""),
        ("WITH t AS (SELECT * FROM {table}) SELECT 1 FROM t", ""),
        ("WITH a AS (SELECT * FROM {table}), b AS (SELECT * FROM a) SELECT 1 FROM b", ""),
        ("SELECT id FROM {table} EXCEPT ALL SELECT id FROM {main}", ""),
        ("SELECT 1 FROM {table}, range(3)", ""),
        ("SELECT assert_true(id > 0) FROM {table}", ""),
        ("SELECT raise_error((SELECT max(x) FROM other.t)) FROM {table}", "another table"),
        ("SELECT 1 FROM {table} t, secret", "another table"),
        ("WITH t AS (SELECT * FROM t) SELECT 1 FROM t, {table}", "another table"),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1 FROM {table}) SELECT 1 FROM b", "another"),
        ("SELECT 1 FROM {table} WHERE EXISTS (WITH x AS (SELECT 1) SELECT 1 FROM x) "
         "AND id IN (SELECT id FROM x)", "another table"),
        ("SELECT 1 FROM {table}.files", "another table"),
        ("SELECT 1 FROM {table}, parquet.`/etc/x`", "another table"),
        ("SELECT 1 FROM {table}, iceberg.`s3://x`", "another table"),
        ("SELECT 1 FROM IDENTIFIER('secret.t'), {table}", "table function"),
        ("SELECT 1 FROM {table}, read_files('x')", "table function"),
        ("SELECT reflect('a', 'b') FROM {table}", "reflect"),
        ("SELECT version() FROM {table}", "version"),
        ("SELECT current_user() FROM {table}", "current_user"),
        ("SELECT 1 FROM {table}; SELECT 1 FROM x", "one SELECT"),
        ("SELECT 1 FROM {table}) x, (SELECT 1 FROM secret", "parsed"),
        ("SELECT TRANSFORM (id) USING 'x' AS (x) FROM {table}", "program"),
        ("DROP TABLE {table}", "one SELECT"),
    ],
)  # fmt: skip
def test_a_check_reads_its_table_and_nothing_else(query: str, why: str) -> None:
    found = refused(query)
    assert why in found if why else found == ""
