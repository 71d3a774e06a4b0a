"""bench/RESULTS.md: one section per bench, each replaced by its own bench and by nothing else."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# Results

Measured by the scripts of this directory; each section names the command that wrote it. Ratios of
one run carry over to other machines, absolute numbers do not. Nothing here is asserted by a test.
"""


def logged(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a bench's log, which is what its earlier runs found; [] without one."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def write_section(name: str, command: str, rows: Sequence[Sequence[str]], notes: str = "") -> str:
    """Replaces or adds the section; rows[0] is the head. Returns the section's text."""
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    table = "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}, {dt.date.today()}"
    body = f"## {name}\n\n`{command}`, {where}\n\n{table}\n"
    body += f"\n{notes.strip()}\n" if notes else ""
    section = f"<!-- begin {name} -->\n{body}<!-- end {name} -->\n"
    text = RESULTS.read_text() if RESULTS.exists() else HEAD
    marked = re.compile(
        f"<!-- begin {re.escape(name)} -->.*?<!-- end {re.escape(name)} -->\n", re.DOTALL
    )
    text = marked.sub(lambda _: section, text) if marked.search(text) else f"{text}\n{section}"
    RESULTS.write_text(text)
    return section
