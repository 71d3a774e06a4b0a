"""Parses and formats the documents' quantities exactly: bytes, durations, decimals.

Documents write them as text ("500Gi", "1h30m", "1.5"), because YAML and JSON would turn some into
floats and lose others. Values too large to be meaningful saturate, so that no array overflows.
"""

from __future__ import annotations

import re
from decimal import Decimal

BYTES = re.compile(r"(0|[1-9][0-9]*)(Ki|Mi|Gi|Ti|Pi)?")
DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,4})?")

MAX_BYTES = 2**63 - 1
MAX_SECONDS = 100 * 365 * 86_400
DECIMAL_UNIT = 10_000
"""A decimal is hashed as a whole number of ten-thousandths: four decimal places are kept."""

_SUFFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def parse_bytes(value: str | int) -> int:
    """Return the bytes of "500Gi", "0", 1024; at most MAX_BYTES. Raises ValueError on anything
    else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return min(value, MAX_BYTES)
    match = BYTES.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a size in bytes")
    return min(int(match[1]) * _SUFFIXES.get(match[2], 1), MAX_BYTES)


def format_bytes(value: int) -> str:
    """Return the shortest exact form: with the largest suffix that divides the value."""
    for suffix, unit in reversed(_SUFFIXES.items()):
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def parse_duration(value: str) -> int:
    """Return the seconds of "1h30m"; at most 100 years. Raises ValueError on anything else."""
    match = DURATION.fullmatch(value) if isinstance(value, str) and len(value) >= 2 else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return min(hours * 3600 + minutes * 60 + seconds, MAX_SECONDS)


def format_duration(seconds: int) -> str:
    """Return "1h30m" for 5400; whole hours stay hours ("168h"), zero is "0s"."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def parse_decimal(value: str) -> Decimal:
    """Return the exact decimal of "1.5", trailing zeros dropped. Raises ValueError on anything
    else."""
    if not isinstance(value, str) or DECIMAL.fullmatch(value) is None:
        raise ValueError(f"{value!r} is not a decimal number as text")
    return Decimal(format_decimal(Decimal(value)))


def format_decimal(value: Decimal) -> str:
    """Return the decimal without exponent and trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def decimal_units(value: Decimal) -> int:
    """Return ten-thousandths, the whole number that is hashed."""
    return int(value * DECIMAL_UNIT)
