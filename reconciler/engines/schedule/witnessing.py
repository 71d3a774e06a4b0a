"""Judges what the witness (`reconciler.rewrite`) finds in files, before anything is committed.

The engine says where the work is done; what does it gets names of files and returns sums. Nothing
of a row crosses between processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from reconciler.api.choices import Verification
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.asking import (
    DROPPED,
    Unseen,
    clause,
    look,
    raise_first,
)
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.described import (
    delete_of,
    form_of,
    inputs_of,
    outputs_of,
    table_of,
    with_partitions,
    without_ids,
)
from reconciler.engines.schedule.refused import NotVerified
from reconciler.format import count, plural
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.comparison import (
    Compared,
    Exchange,
    Fingerprint,
    WitnessResult,
    WitnessWork,
    differing,
)
from reconciler.rewrite.deletes import Deletes
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.files import DataFile
from reconciler.table.refusals import NOT_VERIFIED, Refusal

MOST_NAMED = 3
"""Files that a message names."""


def checks_hashes(mode: str, group_id: str) -> bool:
    """Whether the rows of a group are hashed; Sampled hashes one group in eight, chosen by its
    id."""
    if mode == Verification.SAMPLED:
        return hashlib.sha256(group_id.encode()).digest()[0] % 8 == 0
    return mode == Verification.FULL


def same_rows(
    attempt: Attempt,
    base: str,
    tasks: Tasks,
    files: Sequence[WrittenFile],
    work: WitnessWork,
    read_back: Callable[[], WitnessResult],
) -> tuple[int, float]:
    """Return the number of rows that are in the inputs and in the outputs, and its CPU seconds.

    files: the outputs, not committed yet. work: the inputs. read_back: returns what the witness
    finds in the outputs. Raises NotVerified if the rows are not the same ones.
    """
    try:
        read = look(attempt, f"{base}/verify", work)
    except Unseen as unseen:
        raise _not_seen(attempt, unseen.failures) from unseen
    outputs = outputs_of(files)
    try:
        found = read_back()
    except Unseen as unseen:
        raise _misread(attempt, tasks, unseen.failures[0]) from unseen

    def columns() -> tuple[str, ...]:
        return _differing(attempt, base, work, outputs)

    return _judged(attempt, work, outputs, read, found, columns)


def compared_by_task(
    attempt: Attempt, work: WitnessWork, outputs: tuple[DataFile, ...], found: Compared
) -> tuple[int, float]:
    """Return what `same_rows` does of files that the task itself had compared."""
    try:
        raise_first(attempt, found.before.failures)
    except Unseen as unseen:
        raise _not_seen(attempt, unseen.failures) from unseen
    try:
        raise_first(attempt, found.after.failures)
    except Unseen as unseen:
        paths = [file.path for file in work.files]
        raise _misread(attempt, paths, unseen.failures[0]) from unseen
    return _judged(attempt, work, outputs, found.before, found.after, lambda: found.differing)


def _judged(
    attempt: Attempt,
    work: WitnessWork,
    outputs: tuple[DataFile, ...],
    read: WitnessResult,
    found: WitnessResult,
    columns: Callable[[], tuple[str, ...]],
) -> tuple[int, float]:
    """Return what `same_rows` does, from what the witness found in the inputs (read) and in the
    outputs (found). columns: returns those that differ. Raises NotVerified unless the rows are the
    same."""
    if read.fingerprint != found.fingerprint:
        raise _other_rows(attempt, work, columns, read.fingerprint, found.fingerprint)
    counted = sum(file.rows for file in outputs)
    if counted != found.fingerprint.rows:
        what = f"wrote {count(found.fingerprint.rows)} rows, of which its manifests count "
        paths = [file.path for file in work.files]
        raise _refused(attempt, paths, f"{what}{count(counted)}")
    return read.fingerprint.rows, read.cpu_seconds + found.cpu_seconds


def seen_outputs(
    attempt: Attempt,
    base: str,
    files: Sequence[WrittenFile],
    hashed: bool,
    moved: bool,
    blocks: Blocks | None,
) -> WitnessResult:
    """Return what uncommitted files hold. moved: whether rows moved to another partition spec.
    blocks: the block ids that they must have. Raises Unseen, FileNotFoundError."""
    outputs = outputs_of(files)
    if moved:
        outputs = with_partitions(attempt, files, outputs)
    table = without_ids(table_of(attempt), blocks)
    work = WitnessWork(table, outputs, hashed=hashed, form=form_of(attempt), blocks=blocks)
    return look(attempt, f"{base}/verify", work)


def same_deletes(
    attempt: Attempt,
    base: str,
    tasks: Tasks,
    files: Sequence[DeleteFile],
    added: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> tuple[int, float]:
    """Return how many rows of data files are deleted, before and after delete files are replaced,
    and the CPU seconds of comparing them.

    files: all delete files of the attempt's snapshot; added ones are not committed yet. Raises
    NotVerified unless the same rows are deleted.
    """
    gone = {file.identity for file in removed}
    new = [delete_of(file, attempt.sequence_number + 1) for file in added]
    kept = [delete_of(file) for file in files if file.identity not in gone]
    later = Deletes((*kept, *new))
    keys = attempt.table.partition_keys(tasks)
    identities = frozenset(file.identity for file in added)
    exchanges = tuple(
        Exchange(file, later.of(file.path, file.sequence, keys[file.path]), identities)
        for file in inputs_of(attempt, tasks, Deletes(map(delete_of, files)))
    )
    work = WitnessWork(table_of(attempt), exchanges=exchanges)
    try:
        seen = look(attempt, f"{base}/verify", work)
    except Unseen as unseen:
        own = {file.path for file in added}
        bad = next((one for one in unseen.failures if one.path in own), None)
        if bad is not None:
            what = f"what replaces them cannot be read: {clause(bad)}"
            raise _deletes_refused(attempt, removed, what) from unseen
        raise _not_seen(attempt, unseen.failures) from unseen
    if seen.changed:
        raise _other_deletes(attempt, removed, seen)
    return seen.hidden, seen.cpu_seconds


def _other_deletes(
    attempt: Attempt, removed: Sequence[DeleteFile], seen: WitnessResult
) -> NotVerified:
    sums = (
        (sum(one.back for one in seen.changed), "would be back"),
        (sum(one.gone for one in seen.changed), "others would be hidden"),
        (sum(one.repeated for one in seen.changed), "are written twice"),
        (sum(one.stray for one in seen.changed), "are written that no row has"),
        (sum(one.miscounted for one in seen.changed), "are miscounted by manifests"),
    )
    parts = ", ".join(f"{count(number)} {what}" for number, what in sums if number)
    first = f"Of {plural(len(seen.changed), 'data file')}, the first is {seen.changed[0].path}."
    return _deletes_refused(
        attempt, removed, f"of {count(seen.hidden)} deleted rows {parts}", first
    )


def _deletes_refused(
    attempt: Attempt, removed: Sequence[DeleteFile], what: str, *details: str
) -> NotVerified:
    paths = dict.fromkeys(file.path for file in removed)
    detail = f"replacing it failed its verification: {what}"
    return NotVerified(
        f"verification of {attempt.name} failed: {what}",
        details=(*details, "No delete file was replaced; what was written was removed.", LEFT_OUT),
        do=REPORT,
        refusals=[Refusal(path, NOT_VERIFIED, "", detail) for path in paths],
    )


def _other_rows(
    attempt: Attempt,
    work: WitnessWork,
    differing_columns: Callable[[], tuple[str, ...]],
    read: Fingerprint,
    found: Fingerprint,
) -> NotVerified:
    paths = [file.path for file in work.files]
    if read.rows != found.rows:
        return _refused(attempt, paths, f"read {count(read.rows)} rows, wrote {count(found.rows)}")
    columns = differing_columns()
    where = f" in {_listed('column', columns)}" if columns else ", though those of no column alone"
    what = f"both have {count(found.rows)} rows, but their contents differ{where}"
    return _refused(attempt, paths, what, columns[0] if len(columns) == 1 else "")


def _misread(attempt: Attempt, paths: Iterable[str], failure: Failure) -> NotVerified:
    """Return the error for an output in a form that readers may misread: no row was compared."""
    what = f"what was written cannot be compared: {clause(failure)}"
    return _refused(attempt, list(paths), what, failure.column)


def _refused(attempt: Attempt, paths: Sequence[str], what: str, column: str = "") -> NotVerified:
    """Return the error of a group whose rows differ or cannot be compared; it refuses all inputs of
    the group, whose paths are given."""
    detail = f"a rewrite of {plural(len(paths), 'file')} failed its verification: {what}"
    return NotVerified(
        f"verification of {attempt.name} failed: {what}",
        details=(f"It rewrote {_named(paths)}.", DROPPED, LEFT_OUT),
        do=REPORT,
        refusals=[Refusal(path, NOT_VERIFIED, column, detail) for path in paths],
    )


def _differing(
    attempt: Attempt, base: str, work: WitnessWork, outputs: tuple[DataFile, ...]
) -> tuple[str, ...]:
    """Return the columns whose values differ between inputs and outputs."""
    alone = replace(work, by_column=True)
    before = look(attempt, f"{base}/verify", alone).columns
    after = look(attempt, f"{base}/verify", replace(alone, files=outputs)).columns
    return differing(before, after)


def _not_seen(attempt: Attempt, failures: tuple[Failure, ...]) -> NotVerified:
    more = len(failures) - MOST_NAMED
    first, of = failures[0].path, f", of {len(failures)} such files," if len(failures) > 1 else ""
    return NotVerified(
        f"verification of {attempt.name} failed: {first}{of} cannot be compared",
        details=(
            *(f"{one.path}: {clause(one)}." for one in failures[:MOST_NAMED]),
            *((f"and {more} more",) if more > 0 else ()),
            DROPPED,
            LEFT_OUT,
        ),
        do=REPORT,
        refusals=[Refusal(one.path, NOT_VERIFIED, one.column, one.detail) for one in failures],
    )


def _listed(name: str, values: Sequence[str]) -> str:
    shown = ", ".join(f'"{value}"' for value in values[:MOST_NAMED])
    more = f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
    return f"{name if len(values) == 1 else name + 's'} {shown}{more}"


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:MOST_NAMED])
    return f"{shown} and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else shown


LEFT_OUT = (
    "Later plans leave these files out until the table replaces them, or another version is used."
)
REPORT = "compare what several engines read of these files, and report it as a bug if they agree"
