"""Reads the filters that Iceberg's scan prints in a Spark plan, as a predicate.

Iceberg 1.12 prints dates as days, timestamps as microseconds, and strings in quotes that it does
not escape: a string ends at the first quote that something valid follows. Text that does not match
this grammar to its end raises UnreadableFilters; nothing is guessed.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from reconciler.queries.predicate import FALSE, TRUE
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.comparisons import compare_value, member_of
from reconciler.workload_log.condition_tree import (
    Condition,
    Negated,
    NotPushed,
    ScanPredicate,
    Tree,
    branch,
    scan_predicate,
)
from reconciler.workload_log.constants import Binding


class UnreadableFilters(Exception):
    """The filters are not what this version of Iceberg prints."""


def read_filters(text: str, schema: Schema, binding: Binding) -> ScanPredicate:
    """Return the conjunction of a scan's filters. Raises UnreadableFilters."""
    reader = _Reader(text, schema, binding)
    conditions: list[Tree] = []
    while text and not reader.at_end:
        if conditions:
            reader.take(", ")
        conditions.append(reader.expression())
    return scan_predicate(branch(True, conditions))


_OPERATOR = re.compile(r" (<=|>=|!=|=|<|>) ")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?(?:E-?\d+)?|Infinity)")
_STRING_END = re.compile(r"'(?=$|, |\)| AND | OR )")
_ITEM_END = re.compile(r"'(?=, '|\))")
_TRANSFORM = re.compile(r"(bucket\[\d+\]|truncate\[\d+\]|year|month|day|hour)\(")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class _Reader:
    """A recursive descent over the printed text."""

    def __init__(self, text: str, schema: Schema, binding: Binding):
        self.text, self.at, self.schema, self.binding = text, 0, schema, binding
        self._names = sorted((f.name for f in schema.fields), key=len, reverse=True)

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def take(self, expected: str) -> None:
        if not self.skip(expected):
            raise UnreadableFilters(f"expected {expected!r}")

    def skip(self, expected: str) -> bool:
        found = self.text.startswith(expected, self.at)
        self.at += len(expected) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def expression(self) -> Tree:
        if self.skip("NOT ("):
            inner = self.expression()
            self.take(")")
            return negated(inner)
        if self.skip("("):
            left = self.expression()
            conjunction = self.skip(" AND ")
            if not conjunction:
                self.take(" OR ")
            right = self.expression()
            self.take(")")
            return branch(conjunction, [left, right])
        if self.skip("true") or self.skip("TRUE"):
            return TRUE
        if self.skip("false") or self.skip("FALSE"):
            return FALSE
        for word in ("is_nan(", "not_nan("):
            if self.skip(word):
                field, _ = self.term()
                self.take(")")
                leaf = Condition(field.field_id, "nan")
                return leaf if word == "is_nan(" else Negated(leaf)
        return self.predicate()

    def predicate(self) -> Tree:
        field, transform = self.term()
        if self.skip(" IS NULL"):
            return _placed(Condition(field.field_id, "null"), transform)
        if self.skip(" IS NOT NULL"):
            return _placed(Negated(Condition(field.field_id, "null")), transform)
        negative = self.skip(" NOT")
        if self.skip(" IN ("):
            values = self.items()
            return self.judged(field, transform, "in", values, negative)
        if self.skip(" LIKE "):
            text = self.string(_STRING_END)
            leaf = Condition(field.field_id, "starts", text[: text.rfind("%")].encode())
            return Negated(leaf) if negative else leaf
        operator = None if negative else self.match(_OPERATOR)
        if operator is None:
            raise UnreadableFilters("expected an operator")
        return self.judged(field, transform, operator.group(1), [self.value()], False)

    def judged(
        self, field: Field, transform: str, test: str, values: list[Any], negative: bool
    ) -> Tree:
        """Return the condition; TRUE if a literal's type shows that this column cannot be
        judged."""
        result = _result_field(field, transform)
        try:
            if result is None:
                raise NotPushed("transform")
            if result.type.startswith(("date", "timestamp", "time")):
                return _raw(result, transform, test, values, negative)
            typed = [_typed(result.type, value) for value in values]
            if test == "in":
                return _placed(member_of(result, typed, negative, self.binding), transform)
            return _placed(compare_value(result, test, typed[0], self.binding), transform)
        except (NotPushed, ValueError):
            return TRUE

    def term(self) -> tuple[Field, str]:
        found = self.match(_TRANSFORM)
        field = self.column()
        if found:
            self.take(")")
        return field, found.group(1) if found else "identity"

    def column(self) -> Field:
        for name in self._names:
            end = self.at + len(name)
            if self.text.startswith(name, self.at) and self.text[end : end + 1] in (" ", ")"):
                self.at = end
                return self.schema.by_name[name]
        raise UnreadableFilters("expected a column")

    def items(self) -> list[Any]:
        values = []
        while True:
            values.append(self.value(_ITEM_END))
            if self.skip(")"):
                return values
            self.take(", ")

    def value(self, end: re.Pattern[str] = _STRING_END) -> Any:
        if self.text.startswith("'", self.at):
            return self.string(end)
        if self.skip("X'"):
            self.at -= 1
            return bytes.fromhex(self.string(end))
        for word, value in (("true", True), ("false", False), ("NaN", float("nan"))):
            if self.skip(word):
                return value
        found = self.match(_UUID) or self.match(_NUMBER)
        if found is None:
            raise UnreadableFilters("expected a value")
        return _Number(found.group())

    def string(self, end: re.Pattern[str]) -> str:
        self.take("'")
        found = end.search(self.text, self.at)
        if found is None:
            raise UnreadableFilters("a string does not end")
        start, self.at = self.at, found.end()
        return self.text[start : found.start()]


class _Number(str):
    """Unquoted text of a number, or of a UUID."""

    __slots__ = ()


def _typed(kind: str, value: Any) -> Any:
    """Return a printed value as a Python value of the column's type. Raises NotPushed,
    ValueError."""
    if not isinstance(value, _Number):
        return value
    if kind in ("float", "double"):
        return float(value.replace("Infinity", "inf"))
    if kind == "uuid":
        return str(uuid.UUID(value))
    try:
        return int(value) if value.lstrip("-").isdigit() else Decimal(value)
    except InvalidOperation:
        raise NotPushed("not a number") from None


def _raw(field: Field, transform: str, test: str, values: list[Any], negative: bool) -> Tree:
    """Return the condition; dates and times are printed in the column's own domain."""
    if field.type.endswith("_ns") or not all(isinstance(v, _Number) for v in values):
        raise NotPushed("unit is not known")
    numbers = tuple(sorted({int(value) for value in values}))
    if len(numbers) > 1 or (test == "in" and negative):
        leaf = Condition(field.field_id, "in", numbers)
        return _placed(Negated(leaf) if negative else leaf, transform)
    return _placed(Condition(field.field_id, "=" if test == "in" else test, numbers[0]), transform)


def _result_field(field: Field, transform: str) -> Field | None:
    """Return a field of the transform's result type; None if literals are not printed in its
    domain."""
    if transform == "identity" or (transform.startswith("truncate") and field.type != "binary"):
        return field if field.kind is not None else None
    return replace(field, type="int") if transform.startswith("bucket") else (
        replace(field, type="long") if field.kind is not None else None
    )  # fmt: skip


def _placed(tree: Tree, transform: str) -> Tree:
    """Return the same leaf, on a transform of its column."""
    if transform == "identity":
        return tree
    if isinstance(tree, Condition):
        return replace(tree, transform=transform)
    if isinstance(tree, Negated):
        return Negated(replace(tree.leaf, transform=transform))
    return TRUE


_COMPLEMENT = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}


def negated(tree: Tree) -> Tree:
    """Return NOT of a tree by De Morgan. A part that was dropped as TRUE stays TRUE."""
    if isinstance(tree, Condition):
        if tree.test in _COMPLEMENT:
            return replace(tree, test=_COMPLEMENT[tree.test])
        return Negated(tree)
    if isinstance(tree, Negated):
        return tree.leaf if tree.leaf.test in ("null", "nan") else TRUE
    if tree in (TRUE, FALSE):
        return TRUE
    return branch(not tree.conjunction, [negated(child) for child in tree.children])  # type: ignore[union-attr]
