"""Which plans people approved by a review or a comment on the pull request that plans them. Pure.

A comment counts if it is a person's, was not edited, came after the plans were shown and names one
of them. A review counts if it approves the very commit that was planned. Whether the person has the
right is asked from the server, here only of those whose words would count.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

COMMAND = re.compile(r"^/layoutctl[ \t]+approve(?!\S)(.*)$", re.MULTILINE)
"""A line of a comment that approves the plans that it names."""


def _fence(name: str, mark: str, info: str, indent: str, closed: str) -> str:
    """Return the pattern of a block of code between two lines of marks, of which the last one has
    at least as many; without that line it goes on to the end (CommonMark, section 4.5)."""
    opens = rf"^{indent}(?P<{name}>{mark}{{3,}})(?!{mark}){info}$"
    return rf"{opens}(?:.*?^{closed}(?P={name}){mark}*[ \t]*$|.*\Z)"


# A block at the left margin has at most three blanks before its marks; in a list it has more. Code
# within a line that begins with more than 20 marks counts to the end of its paragraph: a search for
# its end, once for each number of marks, would take seconds for a hostile comment.
_LEFT, _NESTED = " {0,3}", "(?= {4}| {0,3}\t)[ \t]+"
_ASIDE = re.compile(
    "|".join(
        [
            _fence("ticks", "`", r"[^\n`]*", _LEFT, _LEFT),
            _fence("waves", "~", r"[^\n]*", _LEFT, _LEFT),
            _fence("inner_ticks", "`", r"[^\n`]*", _NESTED, r"[ \t]*"),
            _fence("inner_waves", "~", r"[^\n]*", _NESTED, r"[ \t]*"),
            r"<!--.*?(?:-->|\Z)",
            r"(?i:<(?P<tag>pre|code|script|style|textarea)\b.*?(?:</(?P=tag)|\Z))",
            r"(?<![`\\])(?P<span>`{1,20})(?!`)(?:(?!\n[ \t]*\n).)*?(?<!`)(?P=span)(?!`)",
            r"`{21,}(?:(?!\n[ \t]*\n).)*",
        ]
    ),
    re.MULTILINE | re.DOTALL,
)
"""What Markdown shows as code, or does not show: a command in it is an example."""
MARKER = "<!-- layoutctl:plan"
"""Beginning of the comment that shows the plans."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment on a pull request."""

    user: str
    """Name of its author, as the server spells it."""
    person: bool
    """Whether the author is a person, and not a program."""
    text: str
    """The text as it is now."""
    created: datetime
    """When it was written."""
    updated: datetime
    """When it was changed last."""


@dataclass(frozen=True, slots=True)
class Review:
    """The last review of a person that approves, or takes an approval back."""

    user: str
    """Name of the reviewer."""
    person: bool
    """Whether the reviewer is a person, and not a program."""
    approves: bool
    """Whether it approves."""
    commit: str
    """The commit that was reviewed, "" if the server does not say."""
    at: datetime
    """When it was given."""


@dataclass(frozen=True, slots=True)
class Discussion:
    """A pull request as the server has it."""

    head: str
    """The commit that it would merge."""
    open: bool
    """Whether it is open or merged, and not closed otherwise."""
    remarks: tuple[Remark, ...]
    """Its comments, in any order."""
    reviews: tuple[Review, ...]
    """The last review of each person, in any order."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Words that were meant to approve a plan and do not."""

    user: str
    """Who wrote them."""
    plan: str
    """What they name in the place of a plan's id, which may be any text; "" for a review."""
    why: str
    """Why they do not count."""


EDITED = "the comment was edited"
TOO_EARLY = "it is older than the comment that shows the plans"
NOT_SHOWN = "no comment of the user who shows plans has all plans of the head"
NO_IDS = "a command has the ids of plans after it, and nothing else"
ASIDE = "it stands in a code block or in an HTML comment"
OTHER_PLAN = "this is no plan of the pull request's head"
OTHER_COMMIT = "another commit was reviewed"
NO_PERSON = "it is not from a person"
NO_RIGHT = "the person may not write to the repository"


@dataclass(frozen=True, slots=True)
class Approved:
    """What the words on a pull request approve."""

    by: Mapping[str, str]
    """Who approved each plan, by its id."""
    refused: tuple[Refused, ...]
    """Words that do not count."""


def approvals(
    found: Discussion, plans: Collection[str], own: str, may: Callable[[str], bool]
) -> Approved:
    """Return the plans that people approved.

    plans: ids of the plans of the head. own: the name under which the plans are shown; a comment of
    somebody else does not show them. may: whether a person may write to the repository.
    """
    shown = _shown_since(found.remarks, plans, own)
    by: dict[str, str] = {}
    refused: list[Refused] = []
    may = functools.cache(may)
    for user, named, why in _words(found, shown):
        wrong = why
        if named and named not in plans and why in ("", NOT_SHOWN, TOO_EARLY):
            wrong = OTHER_PLAN
        if not wrong and not may(user):
            wrong = NO_RIGHT
        if wrong:
            refused.append(Refused(user, named, wrong))
            continue
        for plan in [named] if named else sorted(plans):
            by.setdefault(plan, user)
    return Approved(by, tuple(refused))


def _shown_since(remarks: Iterable[Remark], plans: Collection[str], own: str) -> datetime | None:
    """Return when the plans were shown as they are; None if they are not."""
    times = [
        one.updated
        for one in remarks
        if one.user == own and one.text.startswith(MARKER) and all(p in one.text for p in plans)
    ]
    return max(times, default=None)


def _words(found: Discussion, shown: datetime | None) -> list[tuple[str, str, str]]:
    """Return (user, named plan, why it does not count) of each approval in words, oldest first: ""
    for a review, which names no plan, and for what may count."""
    words = [
        (one.created, one.user, plan, wrong or _wrong_remark(one, shown))
        for one in found.remarks
        for plan, wrong in _named(one.text)
    ]
    words += [
        (one.at, one.user, "", _wrong_review(one, found.head, shown))
        for one in found.reviews
        if one.approves
    ]
    return [word[1:] for word in sorted(words)]


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Yield what the commands of a comment name, with what is wrong with the command, "" if
    nothing is."""
    if text.startswith(MARKER):
        return
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as Markdown ends lines
    for line in COMMAND.findall(_ASIDE.sub("`", text)):
        names = line.split()
        if names and all(name.startswith("p-") for name in names):
            yield from ((name, "") for name in names)
        else:
            yield line.strip(), NO_IDS
    for aside in _ASIDE.finditer(text):
        yield from ((line.strip(), ASIDE) for line in COMMAND.findall(aside[0]))


def _wrong_remark(one: Remark, shown: datetime | None) -> str:
    if not one.person:
        return NO_PERSON
    if one.updated != one.created:
        return EDITED
    return _wrong_time(one.created, shown)


def _wrong_review(one: Review, head: str, shown: datetime | None) -> str:
    if not one.person:
        return NO_PERSON
    if one.commit and one.commit != head:
        return OTHER_COMMIT
    return _wrong_time(one.at, shown)


def _wrong_time(at: datetime, shown: datetime | None) -> str:
    if shown is None:
        return NOT_SHOWN
    return TOO_EARLY if at <= shown else ""
