"""Formats numbers for people: IEC bytes, counts, durations, times. Unknown is "-", never 0."""

from __future__ import annotations

import datetime as dt
import math
import re

_COMMANDS = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that end a line, that a terminal obeys, that turn the direction of text around, or
that no encoding has."""


def printable(text: str) -> str:
    """Return a name or another text of other people so that it stays where it is printed: what ends
    a line or commands a terminal is U+FFFD, a tab is a blank."""
    return _COMMANDS.sub("\ufffd", text).replace("\t", " ")


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def iec(size: float | None) -> str:
    """Return bytes with one decimal and a binary unit: 212.4 GiB; below 1 KiB whole bytes."""
    if size is None or size < 0 or math.isnan(size):
        return "-"
    value, unit = float(size), 0
    while value >= 1023.95 and unit < len(_UNITS) - 1:
        value /= 1024.0
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def saved_text(least: float, exact: bool) -> str:
    """Return saved bytes; a saving that is only known to be at least so large says so."""
    size = iec(least) if least >= 0 else f"-{iec(-least)}"
    return size if exact else f"at least {size}"


def part_of(part: str, total: str) -> str:
    """Return `1.9 of 10.0 MiB`: the unit once if both have the same one."""
    number, _, unit = part.partition(" ")
    return f"{number if unit == total.partition(' ')[2] else part} of {total}"


def count(number: float | None) -> str:
    """Return a whole number with thousands separators; from ten million on, in short form: 3.61
    G."""
    if number is None or number < 0 or math.isnan(number):
        return "-"
    if number < 1e7:
        return f"{number:,.0f}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:,.2f} {letter}"
    return f"{number:,.0f}"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share of one as percent; a positive share never prints as zero."""
    if share is None or math.isnan(share):
        return "-"
    value = share * 100.0
    smallest = 10.0**-digits
    if 0 < value < smallest:
        return f"< {smallest:g} %"
    return f"{value:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units: 4 s, 9 min, 12 min 40 s, 5 h, 2 d."""
    if seconds is None or seconds < 0 or math.isnan(seconds) or math.isinf(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" + (f" {rest} s" if minutes < 20 and rest else "")
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h" if seconds < 36_000 else f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:.0f} d"


def cpu(seconds: float | None) -> str:
    """Return CPU time: 0.4 CPU s, 12 CPU s, 3 CPU min, 2.1 CPU h."""
    if seconds is None or seconds < 0 or math.isnan(seconds):
        return "-"
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} CPU s"
    if seconds < 120:
        return f"{seconds:.0f} CPU s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} CPU min"
    return f"{seconds / 3600:,.1f} CPU h"


def plural(number: float, noun: str, nouns: str = "") -> str:
    """Return the number with its noun: 1 file, 1,200 files."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def utc(moment_ms: float | None) -> str:
    """Return epoch milliseconds as an ISO UTC time of whole seconds."""
    if moment_ms is None or moment_ms < 0:
        return "-"
    moment = dt.datetime.fromtimestamp(moment_ms / 1000.0, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> str:
    """Return how long ago, coarsely: "6 min ago"."""
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 48 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return f"{seconds // 86_400:.0f} d ago"
