"""Searches for trees by Woodblock, outside of decisions, and keeps what it finds by its inputs, so
that the same inputs give the same tree at every plan.

Trees are kept in the state store, as codes without any value of the table: a lost one is found
again. A search that is interrupted goes on from a file in the cache, with the same result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.advisor.qdtree.codes import codes_of
from reconciler.advisor.qdtree.woodblock import Progress, Training, trained
from reconciler.errors import ReconcilerError, first_line
from reconciler.state.blobs import pack, unpack
from reconciler.state.store import Store

log = logging.getLogger(__name__)

MOST_KEPT = 16
"""Trees of a table that are kept, those that were found last."""
KEPT_ROUNDS = 8
"""Rounds of a search between two times that it is kept: 128 episodes."""

Codes = Mapping[str, tuple[int, ...]]
"""Codes of trees by `Training.name`."""


@dataclass(frozen=True, slots=True)
class Trees:
    """What was asked of Woodblock."""

    codes: Codes = field(default_factory=dict)
    """The trees."""
    missing: str = ""
    """The package that is not installed, "" if all are."""


def trained_trees(store: Store, cache: Path, table_uuid: str, wanted: Sequence[Training]) -> Trees:
    """Return a tree for each search. One that is not kept yet is searched now, and kept.

    table_uuid: of the table, under which trees are kept.
    """
    key = trees_key(table_uuid)
    found: dict[str, tuple[int, ...]] = {}
    for training in wanted:
        kept = store.note_as(key, _kept) or {}
        codes = kept.get(training.name)
        if codes is None:
            try:
                codes = codes_of(_searched(training, cache / f"woodblock-{table_uuid}.npz"))
            except ModuleNotFoundError as error:
                return Trees(found, str(error.name))
            newest = {**kept, training.name: codes}
            last = list(newest.items())[-MOST_KEPT:]
            store.set_note(key, [[name, list(tree)] for name, tree in last])
        found[training.name] = codes
    return Trees(found)


def trees_key(table_uuid: str) -> str:
    """Return the key of the note with the trees that were found for a table."""
    return f"woodblock:{table_uuid}"


def _kept(note: Any) -> dict[str, tuple[int, ...]]:
    """Return the trees of a note. Raises ValueError or TypeError if it holds none."""
    return {str(name): tuple(int(code) for code in tree) for name, tree in note}


def _searched(training: Training, path: Path) -> Any:
    """Return the best tree. path: of the file that keeps how far the search has come."""
    leaves = sum(1 for _ in training.start.leaves())
    log.info(
        "looking for a better tree than one of %d leaves, in %d episodes", leaves, training.episodes
    )

    def keep(progress: Progress) -> None:
        if progress.rounds % KEPT_ROUNDS == 0:
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                beside = path.with_suffix(f".{os.getpid()}")
                beside.write_bytes(_packed(progress))
                beside.replace(path)

    return trained(training, _read(path), keep)


def _packed(progress: Progress) -> bytes:
    header = {
        "name": progress.name, "rounds": progress.rounds, "best": list(progress.best),
        "optimiser": len(progress.optimiser),
    }  # fmt: skip
    arrays = {f"w.{name}": values for name, values in progress.weights.items()}
    arrays |= {f"o.{number}": values for number, values in enumerate(progress.optimiser)}
    return pack(header, arrays)


def _read(path: Path) -> Progress | None:
    """Return how far an earlier search came, None if that is not known."""
    try:
        header, arrays = unpack(path.read_bytes())
        return Progress(
            str(header["name"]), int(header["rounds"]), tuple(map(int, header["best"])),
            {name[2:]: values for name, values in arrays.items() if name.startswith("w.")},
            tuple(arrays[f"o.{number}"] for number in range(int(header["optimiser"]))),
        )  # fmt: skip
    except FileNotFoundError:
        return None
    except (
        OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error,
        ReconcilerError,
    ) as error:  # fmt: skip
        log.warning('the search in "%s" begins anew: %s', path, first_line(error))
        return None
