"""Golden files of what is printed, and the command that rewrites them: make golden."""

from __future__ import annotations

from pathlib import Path

from tests.said import WRITING

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, text: str) -> None:
    """The text is what the file says; with LAYOUTCTL_GOLDEN=write the file is made so."""
    path = GOLDEN / f"{name}.txt"
    if WRITING:
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def too_long(text: str, width: int) -> list[str]:
    """Lines that do not fit; a command to copy is never broken and may be longer."""
    return [
        line
        for line in text.splitlines()
        if len(line) > width
        and not line.lstrip().startswith(("next:", "save:", "run:", "layoutctl"))
    ]
