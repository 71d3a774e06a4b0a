"""The files that one run of a task writes. They are removed if the run fails.

A local file is written where it belongs. A file of another store is written to scratch first, and
copied by `Outputs.store`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reconciler.rewrite.storage import Scratch, local_path
from reconciler.rewrite.task import ATTEMPT, NUMBER


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is being written."""

    location: str
    """Its location in the table."""
    path: Path
    """Where it is written: its location if that is local, else a file in scratch."""


class Outputs:
    """A context in which files are begun and stored. An error that leaves it removes them all."""

    def __init__(self, scratch: Scratch, attempt: str) -> None:
        """attempt: names this run of the task among others."""
        self.files: list[StagedFile] = []
        self._scratch, self._attempt = scratch, attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            for file in self.files:
                file.path.unlink(missing_ok=True)
                self._scratch.drop(file.location)

    def begin(self, path: str, inside: str = "") -> StagedFile:
        """Return the next file, not yet written; make its directory if it is local.

        path: location, in whose name ATTEMPT and NUMBER are replaced by those of this run and file.
        inside: a directory to put between the path's directory and the name.
        """
        directory, _, name = path.rpartition("/")
        name = name.replace(ATTEMPT, self._attempt).replace(NUMBER, f"{len(self.files):05d}")
        path = f"{directory}/{inside}/{name}" if inside else f"{directory}/{name}"
        local = local_path(path)
        if local is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
        self.files.append(StagedFile(path, local or self._scratch.fresh()))
        return self.files[-1]

    def store(self, file: StagedFile) -> None:
        """Copy a complete file to its location, and delete it from scratch."""
        self._scratch.store(file.path, file.location)
        if local_path(file.location) is None:
            file.path.unlink()
