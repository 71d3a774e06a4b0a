"""Regular expressions mean the same in every Python that the project supports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)[*+?]\+")
MODULES = sorted((ROOT / "reconciler" / "workload_log").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_group_is_repeated_possessively(path: Path) -> None:
    """Python 3.11.2, that of Debian 12, matches such a group wrongly within another one: statements
    after a comment were not found. An atomic group, (?>(?:...)*), is right everywhere."""
    assert not POSSESSIVE_GROUP.search(path.read_text())
