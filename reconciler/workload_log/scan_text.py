"""Parses a scan's line in the text of a Spark plan: its table, its filters and its columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ScanText:
    """What a scan's line in the plan says."""

    table: tuple[str, ...]
    """Levels of the table's name."""
    columns: tuple[str, ...] | None
    """Names of the columns read; None if Spark cut the list off."""
    branch: str
    """The branch read, "" for the main one."""
    filters: str
    """The filters as Iceberg prints them."""
    grouped: bool = False
    """Whether the scan is grouped by partition, for a storage-partitioned join."""


_SCAN = re.compile(
    r"Iceberg(?:CopyOnWrite|BatchQuery)?Scan\(table=(?P<table>.{1,2000}?), ", re.DOTALL
)


_ATTRIBUTE = re.compile(r"#\d+L?$")


def parse_scan(text: str) -> ScanText | None:
    """Parse a BatchScan's line as Iceberg 1.12 on Spark 4.1 prints it; None for other kinds of
    scan."""
    found = _SCAN.search(text)
    if found is None:
        return None
    end = text.rfind(", groupedBy=")
    body = text[found.end() : end if end > 0 else len(text)]
    grouped = end > 0 and not text.startswith(")", end + len(", groupedBy="))
    filters, marker, _ = body.rpartition(", runtimeFilters=")
    if not marker:
        filters = body
    head, marker, conditions = filters.partition("filters=")
    if not marker:
        return None
    _, marker, branch = head.partition("branch=")
    name = branch.removesuffix(", ") if marker and branch.endswith(", ") else "null"
    _, bracket, output = text[: found.start()].rstrip().partition("[")
    columns = _attributes(output[:-1]) if bracket and output.endswith("]") else None
    table = tuple(found.group("table").split("."))
    return ScanText(table, columns, "" if name in ("null", "main") else name, conditions, grouped)


def _attributes(text: str) -> tuple[str, ...] | None:
    """Return the names in `id#12L, d#13`; None if "... 5 more fields" hides some."""
    if not text.strip():
        return ()
    names = []
    for item in re.split(r"(?<=\d), |(?<=\dL), ", text):
        name, count = _ATTRIBUTE.subn("", item.strip())
        if not count:
            return None
        names.append(name)
    return tuple(names)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("children", []):
        yield from _nodes(child)


def scan_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in _nodes(plan):
        text = node.get("simpleString", "")
        if "Scan(table=" in text and "Iceberg" in text:
            yield node


def merged_scan(plan: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first scan of the table that a MERGE writes; None in other statements.

    A write of whole files names its table. One of position deletes does not, but the target is the
    left side of its join, so that its scan comes first. A MERGE with a single clause that inserts
    has no MergeRows: its plan is that of an INSERT of an anti-join.
    """
    rows = next((node for node in _nodes(plan) if node.get("nodeName") == "MergeRows"), None)
    if rows is None:
        return None
    writes = (_WRITE.search(node.get("simpleString", "")) for node in _nodes(plan))
    written = next((found.group("table") for found in writes if found), None)
    for node in scan_nodes(rows):
        parsed = parse_scan(node["simpleString"])
        if parsed is not None and written in (None, ".".join(parsed.table)):
            return node
    return None


_WRITE = re.compile(r"IcebergWrite\(table=(?P<table>.{1,2000}?), ", re.DOTALL)
