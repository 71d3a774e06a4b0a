"""A sentence with its numbers apart, so that sentences that differ only in numbers print as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text whose numbers are apart from its words."""

    parts: tuple[str, ...]
    """Text and numbers in turn, beginning and ending with text; numbers as they are printed:
    `0.4`."""

    def __str__(self) -> str:
        return "".join(self.parts)

    def __add__(self, more: Sentence | str) -> Sentence:
        first, *rest = (more,) if isinstance(more, str) else more.parts
        return Sentence((*self.parts[:-1], self.parts[-1] + first, *rest))

    @property
    def form(self) -> tuple[str, ...]:
        """The text around the numbers."""
        return self.parts[::2]

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.parts[1::2]


def sentence(*parts: str) -> Sentence:
    """Return the sentence of these parts: text and numbers by turns, text first."""
    return Sentence(parts if len(parts) % 2 else (*parts, ""))


def with_ranges(alike: Sequence[Sentence]) -> str:
    """Return sentences of one form as one, numbers as ranges: `saves 0.2 - 0.4x of its cost`."""
    columns = zip(*(one.numbers for one in alike), strict=True)
    ranges = [sorted(set(numbers), key=_value) for numbers in columns]
    spans = [ends[0] if len(ends) == 1 else f"{ends[0]} - {ends[-1]}" for ends in ranges]
    text, *rest = alike[0].form
    return text + "".join(span + more for span, more in zip(spans, rest, strict=True))


def _value(number: str) -> float:
    try:
        return float(number)
    except ValueError:  # a document may hold anything
        return math.inf
