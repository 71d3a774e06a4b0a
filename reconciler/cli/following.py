"""The commands that one verb prints for the user to run next, with the options that they need.

A command works only with the documents, the catalog and the state that the present one was given.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Given:
    """The options of the present command that the next one needs too."""

    files: tuple[str, ...] = ()
    catalog: str | None = None
    shared: bool = False

    def words(self) -> list[str]:
        found = [word for path in self.files for word in ("-f", str(path))]
        found += ["--catalog", self.catalog] if self.catalog else []
        return found + ["--shared"] * self.shared


def given(files: Sequence[str] | None, catalog: str | None, shared: bool) -> Given:
    return Given(tuple(str(path) for path in files or ()), catalog, shared)


def plan_command(table: str, options: Given, out: Path | str = "") -> str:
    """Return the command that plans a table. out: the file to save the plan in, "" for none."""
    saved = ["--out", str(out)] if out else []
    return shlex.join(["layoutctl", "plan", table, *options.words(), *saved])


def undo_command(table: str, plan: str, options: Given, out: str) -> str:
    """Return the command that saves the plan that takes a plan back."""
    return shlex.join(["layoutctl", "undo", table, plan, *options.words(), "--out", out])


def apply_command(what: Path | str, options: Given, *flags: str) -> str:
    """Return the command that carries out a table's plan, or a saved one."""
    return shlex.join(["layoutctl", "apply", str(what), *options.words(), *flags])
