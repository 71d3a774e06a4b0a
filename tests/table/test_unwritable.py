"""A table is refused for a type where only Spark could write its files."""

from __future__ import annotations

import pytest

from reconciler.table.left_to_spark import CODEC
from reconciler.table.schema import Field, Schema
from reconciler.table.unwritable import unwritable


def _schema(*kinds: str) -> Schema:
    return Schema(0, tuple(Field(n, f"c{n}", kind) for n, kind in enumerate(kinds, start=1)))


@pytest.mark.parametrize("kind", ["time", "timestamp_ns", "timestamptz_ns"])
def test_the_engine_has_types_that_spark_does_not_have(kind: str) -> None:
    assert unwritable(_schema("long", kind), {}) == ""
    why = unwritable(_schema("long", kind), {CODEC: "lz4"})
    assert f"c2 ({kind})" in why and "lz4" in why
    assert unwritable(_schema("long"), {CODEC: "lz4"}) == "", "Spark writes it"


def test_a_type_that_neither_has_is_named() -> None:
    for kind in ("geometry", "geography(srid:4326,karney)"):
        assert f"c1 ({kind})" in unwritable(_schema(kind, "time"), {})
    assert unwritable(_schema("variant"), {}) == "", "Spark writes it"
    assert "c2 (time)" in unwritable(_schema("variant", "time"), {})


def test_a_name_that_the_witness_cannot_ask_for_is_refused_before_any_work() -> None:
    for name in ("a\0b", "st.\0"):
        schema = Schema(0, (Field(1, name, "long"),))
        assert "NUL" in unwritable(schema, {})
    assert unwritable(Schema(0, (Field(1, 'a\n"b\u0001', "long"),)), {}) == ""
