"""The corpus of good and bad documents through the loader."""

from __future__ import annotations

import pytest

from reconciler.api import rules
from reconciler.api.document_codec import from_document, to_document
from reconciler.api.load import load, parse_documents, read
from reconciler.api.schema import (
    TABLE_LAYOUT,
)
from reconciler.api.support import not_acted_on
from reconciler.errors import InvalidDocuments
from tests.api.corpus_reader import Case, cases
from tests.api.plain_schema import plain_validator, without_nulls

GOOD, BAD, TRANSITIONS = cases("good"), cases("bad"), cases("transitions")


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", GOOD, ids=by_name)
def test_a_good_document_loads_and_prints_back_to_itself(case: Case) -> None:
    (document,) = load([case.path]).all
    printed = to_document(document)
    assert from_document(printed) == document
    assert printed["spec"] == to_document(from_document(printed))["spec"]


@pytest.mark.parametrize("case", BAD, ids=by_name)
def test_a_bad_document_has_exactly_the_expected_problems(case: Case) -> None:
    reading = read([case.path])
    found = [f"{problem.field}: {problem.message}" for problem in reading.errors]
    assert len(found) == len(case.expected), found
    for text in case.expected:
        assert any(item.startswith(text) for item in found), (text, found)


@pytest.mark.parametrize("case", BAD, ids=by_name)
def test_a_problem_points_at_the_line_that_holds_its_field(case: Case) -> None:
    lines = case.path.read_text(encoding="utf-8").splitlines()
    for problem in read([case.path]).errors:
        assert problem.file == str(case.path)
        line = lines[problem.line - 1]
        assert not line.startswith("#")
        assert 1 <= problem.column <= len(line)


@pytest.mark.parametrize("case", BAD, ids=by_name)
def test_load_raises_with_an_excerpt_and_never_shows_a_credential(case: Case) -> None:
    with pytest.raises(InvalidDocuments) as raised:
        load([case.path])
    rendered = raised.value.render()
    assert rendered.count("error: ") == len(case.expected)
    assert "hunter2" not in rendered
    assert all("hunter2" not in f"{p.message}{p.hint}" for p in raised.value.problems)
    assert max(map(len, rendered.replace(f"{case.path.parent}/", "").splitlines())) <= 160


@pytest.mark.parametrize("case", GOOD + BAD, ids=by_name)
def test_structural_findings_agree_with_plain_json_schema(case: Case) -> None:
    """A structural fault is found exactly where plain JSON Schema finds one."""
    (document,), _ = parse_documents([case.path])
    kind = document.value["kind"]
    theirs = {
        tuple(error.absolute_path)
        for error in plain_validator(kind).iter_errors(without_nulls(document.value))
    }
    from reconciler.api.checks import findings

    ours = {item.path for item in findings(document, kind) if item.severity == "error"}
    assert all(any(path[: len(fault)] == fault for path in ours) for fault in theirs)
    if not ours:
        assert not theirs


def test_every_rule_is_broken_by_some_document_of_the_corpus() -> None:
    expected = [text for case in BAD + TRANSITIONS for text in case.expected]
    for rule in rules.RULES:
        assert any(text.endswith(rule.message) for text in expected), rule.message


@pytest.mark.parametrize("case", GOOD, ids=by_name)
def test_only_documents_that_set_a_later_field_get_the_notice(case: Case) -> None:
    (document,) = load([case.path]).all
    names = not_acted_on(document)
    expected = {
        "anchors": [
            "spec.engine.driver.cores",
            "spec.engine.driver.memory",
            "spec.engine.executors.instances",
        ],
        "catalog-rest": [
            "spec.secretRef",
            "spec.jobs.serviceAccountName",
            "spec.jobs.image",
            "spec.jobs.sparkConf",
            "spec.jobs.podTemplate",
            "spec.workload.excludeColumns",
            "spec.workload.sources",
        ],
        "catalog-pod-template": ["spec.jobs.podTemplate"],
        "table-layout": ["spec.approvedPlan"],
        "every-field": ["spec.recommend"],
    }
    assert names == expected.get(case.name, [])


def test_the_corpus_covers_every_kind() -> None:
    kinds = {type(document).__name__ for case in GOOD for document in load([case.path]).all}
    assert TABLE_LAYOUT in kinds and len(kinds) == 3
