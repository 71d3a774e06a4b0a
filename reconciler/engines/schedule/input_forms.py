"""Refuses inputs whose Parquet schema is not what the Iceberg specification allows, before anything
is written; and keeps what the same footers say of the memory that rows take.

The planner leaves such files out as far as it reads footers; here every input is checked, on the
driver, as the witness opens it. What is refused is recorded, so that no plan takes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from reconciler.catalog import file_forms
from reconciler.catalog.file_forms import File, read_forms
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.engines.schedule.run import Run
from reconciler.engines.task_file import TaskFile
from reconciler.errors import RefusedInputsError
from reconciler.format import plural
from reconciler.plan.execution import plan_of_file
from reconciler.rewrite.storage import Opening, local_path
from reconciler.table.physical import (
    NAME_MAPPING,
    POSITION_DELETES,
    Expected,
    Form,
    fault_of,
    only,
)
from reconciler.table.refusals import REMEDIES, Refusal

MOST_NAMED = 3
"""Files that the error names; the record has all of them."""


def refuse_unsound(
    run: Run, files: Iterable[TaskFile] = (), deletes: Iterable[DeleteFile] = ()
) -> None:
    """Raise RefusedInputsError if a reader may misread one of the files; record all of them.

    Files that our own commits wrote need no check, and vectors are no Parquet files.
    """
    columns, files = _columns(run), tuple(files)
    rows = {file.path: file.rows for file in files}
    expected: dict[File, Expected] = {(file.path, file.size): columns for file in files}
    for file in deletes:
        if not file.vector:
            form = only(columns, file.keys) if file.keys else POSITION_DELETES
            expected[file.path, file.size] = form
    others = foreign(run, expected)
    wanted = {path: expected[path, size] for path, size in others}
    opened = _opener(others, lambda: opening_of(run.request.catalog, run.request.table))
    forms = read_forms(others, file_forms.reader(opened, rows, run.decoded.note))
    refuse(run, _refusals(forms, wanted))


def refuse(run: Run, found: Sequence[Refusal]) -> None:
    """Raise RefusedInputsError for refused inputs, if there are some, and record them."""
    if not found:
        return
    run.ledger.record_refusals(run.request.table_uuid, found)
    more = len(found) - MOST_NAMED
    raise RefusedInputsError(
        f"{plural(len(found), 'input')} of plan {run.request.plan_id} may not be rewritten",
        details=(
            *(one.text for one in found[:MOST_NAMED]),
            *((f"and {more} more",) if more > 0 else ()),
            "Nothing was written. A new plan leaves them out.",
        ),
        do=REMEDIES[found[0].reason],
    )


def foreign(run: Run, files: Collection[File]) -> list[File]:
    """Return the files that no attempt of ours wrote, by the ledger: any writer can choose a path
    like ours. The ledger is read only if some path is like ours."""
    if not any(plan_of_file(path) for path, _ in files):
        return list(files)
    own = run.ledger.outputs_of(run.request.table_uuid)
    return [file for file in files if file[0] not in own]


def _columns(run: Run) -> Expected:
    return Expected(run.table.schema(), run.table.properties().get(NAME_MAPPING))


def _refusals(forms: Mapping[str, Form], wanted: Mapping[str, Expected]) -> list[Refusal]:
    found = []
    for path in sorted(forms):
        fault = fault_of(forms[path], wanted[path])
        if fault is not None:
            found.append(Refusal(path, fault.reason, fault.column, fault.detail))
    return found


def decoded(attempt: Attempt, files: Collection[File]) -> int:
    """Return the memory of the files' rows when they are decoded, 0 if a footer cannot be read.
    Those that were checked are known, others are read."""
    unknown = [file for file in files if file[0] not in attempt.decoded]
    read_forms(
        unknown,
        file_forms.reader(_opener(unknown, attempt.opening), noted=attempt.decoded.note),
    )
    return attempt.decoded.of([path for path, _ in files])


def _opener(files: Iterable[File], asked: Callable[[], Opening]) -> Callable[[str], Any]:
    """Return what opens the files: local ones in place, others with the catalog's credentials."""
    local = all(local_path(path) is not None for path, _ in files)
    opening = None if local else asked()

    def opened(path: str) -> Any:
        here = local_path(path)
        if here is not None:
            return here.open("rb")
        assert opening is not None  # asked for, since a file is not local
        return opening.open(path).new_input(path).open()

    return opened
