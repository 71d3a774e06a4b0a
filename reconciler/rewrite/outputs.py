"""The files that one run of a task writes: where each is written, and that none is left if it
fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reconciler.rewrite.storage import Scratch, local_path
from reconciler.rewrite.task import ATTEMPT, NUMBER


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is written before it is where it belongs."""

    location: str
    """Where it belongs."""
    path: Path
    """Where it is written: there if that is local, else in scratch."""


class Outputs:
    """Within this context, files are begun and stored; they are removed if an error leaves it."""

    def __init__(self, scratch: Scratch, attempt: str) -> None:
        """attempt: names this run of the task among others."""
        self.places: list[Place] = []
        self._scratch, self._attempt = scratch, attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            for place in self.places:
                place.path.unlink(missing_ok=True)
                self._scratch.drop(place.location)

    def begin(self, path: str, inside: str = "") -> Place:
        """Return where the next file is written. path: in whose name ATTEMPT and NUMBER become
        those of this run and file. inside: a directory between it and the name."""
        directory, _, name = path.rpartition("/")
        name = name.replace(ATTEMPT, self._attempt).replace(NUMBER, f"{len(self.places):05d}")
        path = f"{directory}/{inside}/{name}" if inside else f"{directory}/{name}"
        local = local_path(path)
        if local is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
        self.places.append(Place(path, local or self._scratch.fresh()))
        return self.places[-1]

    def store(self, place: Place) -> None:
        """Put a complete file where it belongs, and free what it took in scratch."""
        self._scratch.store(place.path, place.location)
        if local_path(place.location) is None:
            place.path.unlink()
