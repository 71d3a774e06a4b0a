"""Iceberg's partition transforms on whole arrays, and predicates projected through them.

Values are in the column's domain (`values`), results in the result type's domain. Exact per the
Iceberg specification: bucket is murmur3 (x86, 32 bit) of the type's canonical bytes, truncation of
strings counts code points, times before 1970 round down. `project` is the inclusive projection:
if a row satisfies the predicate, its partition value satisfies the projected one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reconciler.queries.literal_ranges import scalar_literals
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.table.filetable import Array
from reconciler.table.values import Kind, decode_wide_decimal, encode_wide_decimal, kind_of

UInt32 = npt.NDArray[np.uint32]

PERIODS = ("year", "month", "day", "hour")
_NUMBERS, _TIMES = ("int", "long", "decimal"), ("date", "timestamp", "timestamptz")
PARTITIONED_TYPES = {
    "identity": (*_NUMBERS, *_TIMES, "boolean", "string", "binary", "uuid", "fixed"),
    "bucket": (*_NUMBERS, *_TIMES, "string", "binary"),
    "truncate": (*_NUMBERS, "string", "binary"),
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": _TIMES[1:],
}
"""Types that each transform takes when files move to a new spec: those of Iceberg's specification
for which Iceberg has a function in Spark. No identity of floating point numbers: 0.0 and -0.0 are
equal to Spark and two partitions to Iceberg."""
_INT64 = np.iinfo(np.int64)


def parse(transform: str) -> tuple[str, int]:
    """Return name and parameter: "bucket[16]" is ("bucket", 16); 0 without a parameter."""
    name, _, argument = transform.partition("[")
    return name, int(argument.rstrip("]")) if argument else 0


def known(transform: str) -> bool:
    return parse(transform)[0] in ("identity", "bucket", "truncate", "void", *PERIODS)


def preserves_order(transform: str) -> bool:
    """Whether a <= b implies transform(a) <= transform(b), so that bounds can be transformed."""
    return parse(transform)[0] in ("identity", "truncate", *PERIODS)


def partitions(function: str, source_type: str) -> bool:
    """Whether rows can be moved to partitions of the transform of such a column."""
    bare = source_type.partition("(")[0].partition("[")[0]
    return bare in PARTITIONED_TYPES.get(function, ())


def groupable(source_type: str) -> bool:
    """Whether the bounds of such a column can be transformed as they are: numbers up to 64 bits,
    dates, times and strings."""
    return source_type in ("string", "int", "long", "date") or source_type in _TIMES


def result_kind(transform: str, source_type: str) -> Kind | None:
    """Return the domain of the transform's result; None for void, unknown transforms and unordered
    types."""
    name, _ = parse(transform)
    if name in ("identity", "truncate"):
        return kind_of(source_type)
    return Kind.INT if name == "bucket" or name in PERIODS else None


def apply(transform: str, source_type: str, values: Array) -> Array:
    """Return the transform of each value; the caller handles nulls. Raises ValueError for an
    unknown one.

    values: the domain of `source_type`, or an object array of bytes if trailing NULs matter.
    """
    name, parameter = parse(transform)
    if name == "identity":
        return values
    if name == "bucket":
        hashed = bucket_hash(source_type, values)
        return (hashed & np.uint32(0x7FFFFFFF)).astype(np.int64) % parameter
    if name == "truncate":
        return _truncate(source_type, values, parameter)
    if name in PERIODS:
        return _period(name, source_type, values)
    raise ValueError(f"cannot apply transform {transform}")


def project(
    op: str, literals: SlotLiterals | None, transform: str, source_type: str
) -> tuple[str, SlotLiterals | None] | None:
    """Return the condition that a matching row's partition value meets; None if nothing follows."""
    name, _ = parse(transform)
    if not known(transform) or name == "void":
        return None
    if name == "identity" or op in ("null", "not null"):
        return op, literals
    if literals is None:
        return None
    if op == "in":
        assert isinstance(literals, tuple)
        return op, _apply_members(transform, source_type, literals)
    assert not isinstance(literals, tuple) or op == "not in"
    if isinstance(literals, tuple):
        return None
    if op == "=":
        return op, apply(transform, source_type, literals)
    if name == "bucket":
        return None
    if op == "not starts":
        # A partition value is at most `width` long, so it never starts with a longer prefix.
        return op, literals
    return _project_ordered(op, literals, transform, source_type)


def _project_ordered(
    op: str, literals: Array, transform: str, source_type: str
) -> tuple[str, SlotLiterals | None] | None:
    """Project an order-preserving transform; x < 5 on a discrete domain is x <= 4, which projects
    tighter."""
    if op == "starts":
        return op, apply(transform, source_type, literals)
    if op in ("<", "<="):
        edge = _shifted(source_type, literals, -1) if op == "<" else literals
        return "<=", apply(transform, source_type, edge)
    if op in (">", ">="):
        edge = _shifted(source_type, literals, 1) if op == ">" else literals
        return ">=", apply(transform, source_type, edge)
    return None


def _shifted(source_type: str, literals: Array, step: int) -> Array:
    """Return the neighbouring value of a discrete numeric domain; byte strings do not change."""
    kind = kind_of(source_type)
    if kind is Kind.INT:
        edge = _INT64.min if step < 0 else _INT64.max
        return np.where(literals == edge, literals, literals + step * (literals != edge))
    if source_type.startswith("decimal"):
        return _wide(literals, lambda unscaled: unscaled + step)
    return literals


def _apply_members(
    transform: str, source_type: str, literals: tuple[tuple[object, ...], ...]
) -> SlotLiterals:
    flat = [value for members in literals for value in members]
    if not flat:
        return tuple(() for _ in literals)
    if isinstance(flat[0], bytes):
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
    else:
        array = np.array(flat, dtype=np.int64)
    results = iter(apply(transform, source_type, array).tolist())
    return tuple(tuple(dict.fromkeys(next(results) for _ in members)) for members in literals)


def bucket_hash(source_type: str, values: Array) -> UInt32:
    """Return murmur3_x86_32 with seed 0 of the canonical bytes of each value (spec, appendix B)."""
    kind = kind_of(source_type)
    if source_type.startswith("decimal"):
        unscaled = _unscaled(values, kind)
        return _murmur3_bytes([_minimal_bytes(number) for number in unscaled])
    if kind is Kind.INT:
        # Nanoseconds hash like microseconds, so that a promoted column keeps its buckets.
        longs = values // 1000 if source_type.endswith("_ns") else values
        return _murmur3_longs(longs.astype(np.int64))
    if kind is Kind.BYTES:
        width = _fixed_width(source_type)
        return _murmur3_bytes([value.ljust(width, b"\0") for value in values.tolist()])
    raise ValueError(f"cannot bucket {source_type}")


def _fixed_width(source_type: str) -> int:
    """Return the width to which numpy's stripped trailing NULs must be restored; 0 for varying
    lengths."""
    if source_type == "uuid":
        return 16
    return int(source_type[6:].strip("[]")) if source_type.startswith("fixed") else 0


def _unscaled(values: Array, kind: Kind | None) -> list[int]:
    if kind is Kind.INT:
        return [int(value) for value in values.tolist()]
    return [decode_wide_decimal(value) for value in values.tolist()]


def _minimal_bytes(number: int) -> bytes:
    """Return the shortest big-endian two's complement form."""
    bits = number.bit_length() if number >= 0 else (number + 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _murmur3_longs(longs: npt.NDArray[np.int64]) -> UInt32:
    bits = longs.view(np.uint64)
    hashed = np.zeros(len(longs), dtype=np.uint32)
    for block in (bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)):
        hashed = _mix(hashed, block.astype(np.uint32))
    return _finish(hashed, np.full(len(longs), 8, dtype=np.uint32))


def _murmur3_bytes(items: list[bytes]) -> UInt32:
    """Hash all values at once: 4-byte block by block, each for the values that are long enough."""
    lengths = np.array([len(item) for item in items], dtype=np.int64)
    blocks = int(lengths.max(initial=0)) // 4 + 1
    padded = b"".join(item.ljust(blocks * 4, b"\0") for item in items)
    words = np.frombuffer(padded, dtype="<u4").reshape(len(items), blocks).astype(np.uint32)
    hashed = np.zeros(len(items), dtype=np.uint32)
    for number in range(blocks):
        whole = lengths >= (number + 1) * 4
        hashed = np.where(whole, _mix(hashed, words[:, number]), hashed)
        tail = ~whole & (lengths > number * 4)
        hashed = np.where(tail, hashed ^ _scramble(words[:, number]), hashed)
    return _finish(hashed, lengths.astype(np.uint32))


def _rotate(value: UInt32, bits: int) -> UInt32:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _scramble(block: UInt32) -> UInt32:
    return _rotate(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mix(hashed: UInt32, block: UInt32) -> UInt32:
    return _rotate(hashed ^ _scramble(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(hashed: UInt32, length: UInt32) -> UInt32:
    hashed = hashed ^ length
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))


def _truncate(source_type: str, values: Array, width: int) -> Array:
    if kind_of(source_type) is Kind.INT:
        return values - values % width
    if source_type.startswith("decimal"):
        return _wide(values, lambda unscaled: unscaled - unscaled % width)
    plain, _ = scalar_literals(values)
    return _truncate_bytes(plain, width, code_points=source_type == "string")


def _wide(values: Array, change: Callable[[int], int]) -> Array:
    """Apply `change` to wide decimals as Python integers one by one: they have more bits than
    numpy's."""
    changed = [encode_wide_decimal(change(decode_wide_decimal(v))) for v in values.tolist()]
    return np.array(changed, dtype=np.bytes_)


def _truncate_bytes(values: Array, width: int, code_points: bool) -> Array:
    """Return the first `width` code points (or bytes) of each value."""
    size = values.dtype.itemsize
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), size)
    starts = (raw & 0xC0) != 0x80 if code_points else np.ones_like(raw, dtype=np.bool_)
    kept = np.where(np.cumsum(starts, axis=1) <= width, raw, 0).astype(np.uint8)
    return np.ascontiguousarray(kept).reshape(-1).view(values.dtype)


def _period(name: str, source_type: str, values: Array) -> Array:
    """Return whole years, months, days or hours since the epoch, rounded down."""
    if source_type == "date":
        if name == "hour":
            raise ValueError("cannot apply transform hour to date")
        days = values
    else:
        unit = 1_000_000_000 if source_type.endswith("_ns") else 1_000_000
        if name == "hour":
            return values // (3600 * unit)
        days = values // (86_400 * unit)
    if name == "day":
        return days.astype(np.int64)
    calendar = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return calendar if name == "month" else calendar // 12
