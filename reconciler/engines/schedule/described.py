"""Tables, data files and delete files of an attempt, as the witness and the tasks take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reconciler.engines import table
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.inputs import types_of
from reconciler.engines.task_file import NO_DELETES
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Column, columns_of, every
from reconciler.rewrite.comparison import WitnessWork
from reconciler.rewrite.deletes import Delete, Deletes
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.rewrite.partition_check import TargetField
from reconciler.table.physical import NAME_MAPPING, Expected, mapping_of

LINEAGE_VERSION = 3
"""Format version from which on rows have ids."""


def table_of(attempt: Attempt) -> TableShape:
    """Return the attempt's table."""
    return attempt.once("table", lambda: _described(attempt.table))


def _described(table: table.Table) -> TableShape:
    columns = columns_of(table.schema())
    ways: dict[int, tuple[Column, ...]] = {}
    for schema in table.schemas():
        ways |= {way[-1].field_id: way for way in every(columns_of(schema))}
    ways |= {way[-1].field_id: way for way in every(columns)}
    lineage = table.format_version() >= LINEAGE_VERSION
    text = table.properties().get(NAME_MAPPING)
    usable = text if mapping_of(text) is not None else None  # files with field ids need none
    return TableShape(columns, ways, usable, lineage)


def live_deletes(attempt: Attempt) -> Deletes:
    """Return the delete files of the attempt's snapshot by what they apply to."""
    return attempt.once(
        "deletes by partition", lambda: Deletes(map(delete_of, delete_files(attempt)))
    )


def delete_files(attempt: Attempt) -> list[DeleteFile]:
    """Return the delete files of the attempt's snapshot."""

    def asked() -> list[DeleteFile]:
        return attempt.table.delete_files(attempt.snapshot_id)

    return attempt.once("delete files", asked)


def delete_of(file: DeleteFile, sequence: int | None = None) -> Delete:
    """sequence: of a file that is not committed yet."""
    return Delete(
        path=file.path,
        format=file.format,
        sequence=file.sequence if sequence is None else sequence,
        partition_key=file.partition_key,
        everywhere=file.everywhere,
        rows=file.rows,
        data_file=file.data_file,
        keys=file.keys,
        offset=file.offset,
        length=file.size,
    )


def inputs_of(attempt: Attempt, tasks: Tasks, deletes: Deletes | None) -> tuple[DataFile, ...]:
    """Return the committed files of tasks. deletes: that may apply, None for none."""
    sources = attempt.once("identity fields", lambda: _identities(attempt.table))
    keys = {} if deletes is None else attempt.table.partition_keys(tasks)
    found = []
    for path, task in tasks.items():
        values = sources.get(task.spec_id, ())
        partition = tuple(
            (field_id, kind, task.partition[at])
            for at, field_id, kind in values
            if at < len(task.partition)
        )
        of = () if deletes is None else deletes.of(path, task.sequence, keys[path])
        found.append(
            DataFile(path, task.rows, task.size, task.sequence, task.first_row_id, partition, of)
        )
    return tuple(found)


def _identities(table: table.Table) -> dict[int, list[tuple[int, int, str]]]:
    """Return the identity fields of each spec: their number, source id and the source's type."""
    types = types_of(table)
    return {
        spec_id: [
            (at, one.source_id, types[one.source_id])
            for at, one in enumerate(fields)
            if one.transform == "identity" and one.source_id in types
        ]
        for spec_id, fields in table.specs().items()
    }


def outputs_of(files: Sequence[WrittenFile]) -> tuple[DataFile, ...]:
    """Return files that are not committed yet."""
    return tuple(DataFile(file.path, file.rows, file.size) for file in files)


def with_partitions(
    attempt: Attempt, files: Sequence[WrittenFile], outputs: Sequence[DataFile]
) -> tuple[DataFile, ...]:
    """Return outputs with the partition that their entries say."""
    keys = [file.partition_key for file in files]
    fields = {spec_id: _fields(attempt.table, spec_id) for spec_id, _ in keys}
    return tuple(
        replace(
            output,
            moved=tuple(
                replace(field, value=json.loads(values).get(number))
                for number, field in fields[spec_id].items()
            ),
        )
        for output, (spec_id, values) in zip(outputs, keys, strict=True)
    )


def _fields(table: table.Table, spec_id: int) -> dict[str, TargetField]:
    """Return the fields of a spec whose column the table has, by field id as JSON has it."""
    types = types_of(table)
    return {
        str(one.field_id): TargetField(one.source_id, types[one.source_id], one.transform, None)
        for one in table.specs()[spec_id]
        if one.source_id in types
    }


def inputs_as_seen(
    attempt: Attempt, tasks: Tasks, hashed: bool, blocks: Blocks | None = None
) -> WitnessWork:
    """Return the inputs, with the deletes that the witness's own rules apply to them. blocks: the
    block ids that are written anew."""
    deletes = live_deletes(attempt) if _may_apply(attempt, tasks) else None
    table = without_ids(table_of(attempt), blocks)
    return WitnessWork(table, inputs_of(attempt, tasks, deletes), hashed=hashed)


def without_ids(table: TableShape, blocks: Blocks | None) -> TableShape:
    """Return the table without the column whose values a rewrite changes."""
    if blocks is None:
        return table
    return replace(table, columns=tuple(one for one in table.columns if one != blocks.column))


def _may_apply(attempt: Attempt, tasks: Tasks) -> bool:
    """Return whether deletes may apply to the files.

    Iceberg's scan leaves out an equality delete whose bounds do not meet those of the data file;
    other readers, and the witness, compare keys.
    """
    if any(task.deletes != NO_DELETES for task in tasks.values()):
        return True
    snapshot = attempt.table.snapshot(attempt.snapshot_id)
    summary = {} if snapshot is None else snapshot.summary
    return (summary.get("total-equality-deletes") or "unknown") != "0"


def form_of(attempt: Attempt) -> Expected:
    """Return what new files of the attempt's table must hold."""
    return attempt.once("form", lambda: Expected(schema_of(attempt)))


def schema_of(attempt: Attempt) -> dict[str, Any]:
    """Return the schema of the attempt's table as the specification writes it in JSON."""
    return attempt.once("schema", lambda: attempt.table.schema())
