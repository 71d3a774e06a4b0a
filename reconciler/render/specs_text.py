"""Renders how a table's files are divided over its partition specs."""

from __future__ import annotations

from typing import Any

import numpy as np

from reconciler.format import count, iec, percent
from reconciler.plan.actions.partition_specs import fields_text
from reconciler.render.terminal import tabulate
from reconciler.table.observation import Observation


def specs_section(seen: Observation, width: int) -> list[str]:
    """Return a line per partition spec with files; [] if all files have the spec of the writers."""
    found = specs_document(seen)
    if all(one["writersFollow"] for one in found if one["dataFiles"]):
        return []
    size = max(seen.files.total_bytes, 1)
    rows = [["PARTITION SPEC", "FILES", "BYTES", "SHARE", ""]]
    for one in found:
        note = "writers follow it" if one["writersFollow"] else ""
        shown = [count(one["dataFiles"]), iec(one["bytes"]), percent(one["bytes"] / size)]
        rows.append([f"  {one['partitioning']}", *shown, note])
    return tabulate(rows, "lrrrl", width)


def specs_document(seen: Observation) -> list[dict[str, Any]]:
    """Return the specs with files, and the one that writers follow, by their ids."""
    files = seen.files
    numbers = np.union1d(np.unique(files.spec_id), [files.default_spec_id])
    return [
        {
            "specId": number,
            "partitioning": fields_text(files.specs[number].own_fields, seen.schema),
            "writersFollow": number == files.default_spec_id,
            "dataFiles": int((files.spec_id == number).sum()),
            "bytes": int(files.bytes[files.spec_id == number].sum()),
        }
        for number in numbers.tolist()
    ]
