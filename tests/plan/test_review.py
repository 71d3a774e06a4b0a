"""Whose words on a pull request approve a plan, and whose do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.plan import review
from reconciler.plan.review import Discussion, Remark, Review, approvals

ONE, TWO, OLD = ("p-" + digit * 20 for digit in "123")
START = datetime(2026, 11, 27, 9, tzinfo=UTC)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def said(text: str, minute: int, user: str = "ada", edited: int = 0, person: bool = True) -> Remark:
    return Remark(user, person, text, at(minute), at(minute + edited))


SHOWN = Remark("ci", False, f"{review.MARKER} x -->\n{ONE} {TWO}", at(0), at(10))
GOOD = said(f"Looks well.\n/layoutctl approve {ONE}\n", 11)
REVIEW = Review("eve", True, True, "head", at(12))
CODE = (
    "```\nx\n    ```{}```", "```\nx\n```~{}", "~~~~\nx\n~~~{}", "~~~ `a`{}~~~", "x\r```{}```",
    "- x\n\n      ```\n      y{}", "<PRE class=x>{}</pre>", "such as <code>{}</code>",
    "such as `a{}b`", "``a ` b{}``",
)  # fmt: skip
"""Comments that Markdown shows with a command, which stands for {}, as code."""


def judged(*remarks: Remark, reviews: tuple[Review, ...] = ()) -> review.Approved:
    found = Discussion("head", True, remarks, reviews)
    return approvals(found, [ONE, TWO], "ci", lambda user: user != "guest")


def test_a_command_approves_the_plan_that_it_names_and_a_review_all() -> None:
    assert judged(SHOWN, GOOD) == review.Approved({ONE: "ada"}, ())
    assert judged(SHOWN, GOOD, reviews=(REVIEW,)).by == {ONE: "ada", TWO: "eve"}
    assert judged(SHOWN, said(f"/layoutctl approve {ONE}\n/layoutctl approve {TWO}", 11)).by == {
        ONE: "ada", TWO: "ada",
    }  # fmt: skip
    after_code = f"```x``` and\n```\nx\n````\n/layoutctl approve {TWO} {ONE}\r\n"
    assert judged(SHOWN, said(after_code, 11)) == review.Approved({TWO: "ada", ONE: "ada"}, ())
    after_all = (
        f"`a` \\` x\n\n- y\n  ```\n  z\n  ```\n\n~~~\n~~~~ \nit's `\n\n/layoutctl approve {ONE}"
    )
    assert judged(SHOWN, said(after_all, 11)).by == {ONE: "ada"}


@pytest.mark.parametrize(
    ("remark", "why"),
    [
        (replace(GOOD, updated=at(12)), review.EDITED),
        (replace(GOOD, created=at(9), updated=at(9)), review.TOO_EARLY),
        (replace(GOOD, created=at(10), updated=at(10)), review.TOO_EARLY),
        (replace(GOOD, person=False), review.NO_PERSON),
        (replace(GOOD, user="guest"), review.NO_RIGHT),
        (said(f"/layoutctl approve {OLD}", 11), review.OTHER_PLAN),
        (said(f"/layoutctl approve {ONE.replace('p', chr(0x440))}", 11), review.NO_IDS),
        (said(f"/layoutctl approve {ONE} if the tests pass", 11), review.NO_IDS),
        (said(f"/layoutctl approve\n{ONE}", 11), review.NO_IDS),
        (said(f"Such as\n```\n/layoutctl approve {ONE}\n```\n", 11), review.ASIDE),
        (said(f"~~~ sh\r\n/layoutctl approve {ONE}\r\n", 11), review.ASIDE),
        (said(f"<!--\n/layoutctl approve {ONE}\n-->", 11), review.ASIDE),
        *((said(text.format(f"\n/layoutctl approve {ONE}\n"), 11), review.ASIDE) for text in CODE),
    ],
)
def test_what_does_not_count_is_named(remark: Remark, why: str) -> None:
    found = judged(SHOWN, remark)
    assert found.by == {}
    assert [one.why for one in found.refused] == [why]


@pytest.mark.parametrize(
    "text",
    [
        f"do not /layoutctl approve {ONE}",
        f"`a`/layoutctl approve {ONE}",
        f"> /layoutctl approve {ONE}",
        f"approve {ONE}",
        "",
    ],
)
def test_other_words_are_no_command(text: str) -> None:
    assert judged(SHOWN, said(text, 11)) == review.Approved({}, ())


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (replace(SHOWN, user="mallory"), review.NOT_SHOWN),
        (replace(SHOWN, text=f"{review.MARKER} x -->\n{ONE}"), review.NOT_SHOWN),
        (replace(SHOWN, text=f"{ONE} {TWO}"), review.NOT_SHOWN),
        (replace(SHOWN, updated=at(30)), review.TOO_EARLY),
    ],
)
def test_plans_that_were_not_shown_before_are_not_approved(shown: Remark, why: str) -> None:
    found = judged(shown, GOOD, reviews=(REVIEW,))
    assert found.by == {}
    assert {one.why for one in found.refused} == {why}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (replace(REVIEW, commit="other"), review.OTHER_COMMIT),
        (replace(REVIEW, person=False), review.NO_PERSON),
        (replace(REVIEW, user="guest"), review.NO_RIGHT),
        (replace(REVIEW, at=at(5)), review.TOO_EARLY),
    ],
)
def test_a_review_of_something_else_approves_nothing(given: Review, why: str) -> None:
    found = judged(SHOWN, reviews=(given,))
    assert found.by == {} and [one.why for one in found.refused] == [why]
    assert judged(SHOWN, reviews=(replace(REVIEW, approves=False),)) == review.Approved({}, ())


def test_the_server_is_asked_once_for_each_person_whose_words_would_count() -> None:
    asked: list[str] = []

    def may(user: str) -> bool:
        asked.append(user)
        return True

    edited = replace(GOOD, user="bob", updated=at(20))
    found = Discussion("head", True, (SHOWN, GOOD, edited, GOOD), (REVIEW,))
    approvals(found, [ONE, TWO], "ci", may)
    assert asked == ["ada", "eve"]
