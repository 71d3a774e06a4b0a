"""Markdown of plans: found and replaced by its first line, never too long, nothing cut unsaid."""

from __future__ import annotations

import re

import pytest
from documents import plan, shape

from reconciler.render.markdown import MAX_CHARACTERS, render_plan, render_plans


def test_it_starts_with_the_marker_and_a_headline() -> None:
    first, second = render_plan({**plan(), "digest": "sha256:ab"}).split("\n\n")[:2]
    assert first == (
        "<!-- layoutctl:plan warehouse.sales.lineitem p-3f9a1c0b77de4c21a0be sha256:ab -->"
    )
    assert second == (
        "### warehouse.sales.lineitem: rewrite 128.0 MiB, recorded queries read "
        "44.0 TiB -> 11.0 TiB (-74 %)"
    )


def test_who_gets_slower_stands_outside_the_fold() -> None:
    text = render_plan(plan())
    visible = text.split("<details>")[0]
    assert "**Slower afterwards**" in visible
    assert "| `l_c1 BETWEEN ? AND ?` | 12 | 1.0 GiB | 2.0 GiB | 55 -> 3 | worse |" in visible
    assert "l_c0" not in visible


def test_storage_interval_cost_and_coverage_are_said() -> None:
    text = render_plan(plan())
    assert "**Storage** grows by 116.0 GiB until old snapshots expire" in text
    assert "10.0 TiB - 13.0 TiB" in text
    assert "1 byte rewritten = 4.2 read (measured); pays back in about 5.0 h." in text
    assert "explains 91 % of recorded bytes; 38 skipped." in text
    assert "candidate 0" in text
    assert "`spec.deletes.compaction`" in text


def test_an_empty_plan_says_why() -> None:
    text = render_plan(plan(actions=0))
    assert "### warehouse.sales.lineitem: nothing to do" in text
    assert "Nothing is above threshold: the layout serves." in text
    assert "candidate 0" in text


@pytest.mark.parametrize("rows", [50, 700, 5000])
def test_it_stays_within_the_limit_and_counts_what_it_cut(rows: int) -> None:
    document = plan(actions=rows, shapes=rows, rejected=rows)
    text = render_plan(document)
    assert len(text) <= MAX_CHARACTERS
    shown = len(re.findall(r"^\| a\d+ \|", text, re.MULTILINE))
    cut = re.search(r"([\d,]+) more rows? cut\.", text)
    assert shown + (int(cut.group(1).replace(",", "")) if cut else 0) == rows
    assert text.count("<details>") == text.count("</details>")


def test_very_long_names_do_not_break_the_limit() -> None:
    document = plan(actions=300, shapes=300, rejected=300)
    for item in document["evidence"]["rejected"]:
        item["why"] = "x" * 5_000
    for item in document["evidence"]["shapes"]:
        item["text"] = "y" * 5_000
    assert len(render_plan(document)) <= MAX_CHARACTERS


def test_names_cannot_end_the_comment_or_the_table() -> None:
    document = plan(table=("sales", "odd-->|name"))
    document["evidence"]["shapes"] = [shape("a = `b` | c", worse=True)]
    lines = render_plan(document).splitlines()
    assert lines[0].count("-->") == 1
    assert lines[0].endswith("-->")
    row = next(line for line in lines if "worse" in line)
    assert "`` a = `b` \\| c ``" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


def test_many_tables_come_largest_first_and_converged_ones_as_a_count() -> None:
    small = plan(actions=1, table=("sales", "small"))
    large = plan(actions=5, table=("sales", "large"))
    done = plan(actions=0, table=("sales", "done"))
    text = render_plans([small, done, large], failed=[("w.x", "table not found")])
    assert "2 tables to change, 1 with nothing to do, 1 failed" in text
    assert text.index("warehouse.sales.large") < text.index("warehouse.sales.small")
    assert "| w.x | table not found |" in text
    assert "warehouse.sales.done" not in text


def test_many_tables_stay_within_the_limit_and_are_counted() -> None:
    documents = [plan(shapes=40, rejected=40, table=("s", f"t{n:04d}")) for n in range(2_000)]
    text = render_plans(documents)
    assert len(text) <= MAX_CHARACTERS
    shown = len(re.findall(r"^\| warehouse\.s\.t", text, re.MULTILINE))
    cut = re.search(r"([\d,]+) more rows cut\.", text)
    assert cut is not None
    assert shown + int(cut.group(1).replace(",", "")) == 2_000


def test_one_document_among_many_is_the_plain_rendering() -> None:
    assert render_plans([plan()]) == render_plan(plan())


def test_budgets_and_digest_are_said_outside_the_fold() -> None:
    digest = "sha256:" + "ab" * 32
    text = render_plan({**plan(), "digest": digest}, "Approval: Manual, not approved.")
    visible = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "**Budget** daily: needs 128.0 MiB; 500.0 of 500.0 GiB left in 24 h." in visible
    assert visible.rstrip().endswith(
        f"Plan `p-3f9a1c0b77de4c21a0be`, digest `{digest}`. Approval: Manual, not approved."
    )


def test_every_plan_of_many_tables_names_its_digest_budgets_and_approval() -> None:
    documents = [
        {**plan(table=("sales", name)), "planId": f"p-{number:020d}", "digest": f"sha256:{number}"}
        for number, name in enumerate(("a", "b"))
    ]
    text = render_plans(documents, approvals=["Approval: first.", "Approval: second."])
    assert text.startswith("<!-- layoutctl:plan tables=2 -->\n")
    assert "digest `sha256:0`. Approval: first." in text
    assert "digest `sha256:1`. Approval: second." in text
    assert text.count("**Budget** daily") == 2


def test_many_budgets_and_actions_of_many_tables_stay_within_the_limit() -> None:
    document = plan(actions=40, table=("s", "n" * 5_000))
    for number, item in enumerate(document["actions"]):
        item["predicted"]["label"] = f"{number} " + "<&|" * 400
    document["evidence"]["budgets"] = ["b" * 400 for _ in range(500)]
    for text in (render_plan(document), render_plans([document] * 400)):
        assert text.startswith("<!-- layoutctl:plan ")
        assert len(text) <= MAX_CHARACTERS
        assert "more" in text and "cut." in text


def test_actions_whose_names_hold_commas_are_set_apart_by_semicolons() -> None:
    document = plan(actions=2)
    labels = ("recluster by Hilbert(a, b), day=2026-10-01", "cluster by c")
    for item, label in zip(document["actions"], labels, strict=True):
        item["predicted"]["label"] = label
    text = render_plans([document, plan(actions=0, table=("s", "u"))])
    assert "| recluster by Hilbert(a, b), day=2026-10-01; cluster by c |" in text
