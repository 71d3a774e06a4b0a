"""Sends one request that holds only on the state it was made for; says what became of it (`Kind`).

Nothing is sent twice here: a request that is late, repeated or doubled fails, because it names the
state of the table that it was made for. To a SQL catalog it is one UPDATE that holds only while the
catalog names the metadata file that was read. To a REST catalog it is a set of requirements.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.commit import metadata
from reconciler.commit.metadata import InvalidUpdate, Update
from reconciler.commit.table import LiveTable, State
from reconciler.engines.answers import ACCEPTED, Answer, Kind
from reconciler.errors import first_line

Requirement = dict[str, Any]
"""A requirement as the REST specification writes it."""


DENIED_STATES = ("42501", "42000")
"""SQLSTATEs of a statement that was not executed: no privilege (PostgreSQL), an access violation
(MySQL).

25006, a read-only transaction, is not one: Iceberg's Java library sends a statement again if its
connection is lost, so that after a failover in the middle of a commit a standby may refuse the
second statement.
"""


def requirements(state: State, branch: str = metadata.MAIN) -> list[Requirement]:
    """Return what makes a request hold on this state alone."""
    body = state.metadata
    return [
        {"type": "assert-table-uuid", "uuid": state.uuid},
        {"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": state.head(branch)},
        {"type": "assert-current-schema-id", "current-schema-id": body["current-schema-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": body["default-spec-id"]},
        {"type": "assert-default-sort-order-id",
         "default-sort-order-id": body["default-sort-order-id"]},
    ]  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One change of a table's metadata."""

    base: State
    """The state that it was made for."""
    updates: Sequence[Update]
    """What changes, as the REST specification writes it."""
    requirements: Sequence[Requirement]
    """What a REST catalog has to check; a SQL catalog holds to the whole state."""
    uuid: str
    """UUID in the name of the metadata file that the client writes."""

    def metadata_file(self) -> str:
        """Return the metadata file that the request writes to a SQL catalog's table."""
        return metadata.next_file(self.base.metadata, self.base.location, self.uuid)


def send(table: LiveTable, request: Request) -> Answer:
    """Send the request once. An error that nobody foresaw leaves the outcome unknown: it may have
    come after the request had left."""
    try:
        return _to_sql(table, request) if table.config.type == "sql" else _to_rest(table, request)
    except Exception as error:
        return Answer(Kind.UNKNOWN, first_line(error) or type(error).__name__)


def _nothing(kind: Kind, why: str) -> Answer:
    """Return the answer to a request that changed nothing."""
    return Answer(kind, why, cannot_arrive=True)


def _failed(error: Exception) -> Answer:
    """Return the answer of a request that did not leave: the storage took no metadata file, or the
    database no statement."""
    return Answer(Kind.FAILED, first_line(error), error, cannot_arrive=True)


# SQL


def _to_sql(table: LiveTable, request: Request) -> Answer:
    base, path = request.base, request.metadata_file()
    try:
        made = metadata.applied(
            base.metadata, request.updates, base.location, int(time.time() * 1000)
        )
    except InvalidUpdate as error:
        return _nothing(Kind.INVALID, str(error))
    try:
        table.write(path, _encoded(path, made))
    except Exception as error:
        table.delete(path)  # a full disk may hold a part of it
        return _failed(error)
    answer = _swapped(table, base.location, path)
    if answer.kind is Kind.ACCEPTED:
        for old in metadata.removed_files(base.metadata, made):
            table.delete(old)
    elif answer.cannot_arrive and not _may_be_named(table, path):
        table.delete(path)
    return answer


def _may_be_named(table: LiveTable, path: str) -> bool:
    """Whether the catalog, or the log of the present metadata, may name the metadata file: the
    statement may have arrived twice, and the second time found the table changed by the first."""
    try:
        state = table.refresh()
    except Exception:
        return True
    log = state.metadata.get("metadata-log") or ()
    return path in (state.location, *(str(one["metadata-file"]) for one in log))


def _encoded(path: str, made: Any) -> bytes:
    data = json.dumps(made, separators=(",", ":")).encode()
    if not path.endswith(".gz.metadata.json"):
        return data
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def _swapped(table: LiveTable, old: str, new: str) -> Answer:
    """Move the table's pointer if it is still the old one. Whatever fails before the transaction
    ends has changed nothing; if its end is not confirmed, nobody knows."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    query = text(
        "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old "
        "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name "
        "AND metadata_location = :old"
    )
    ending = False
    try:
        with table.catalog.engine.connect() as connection:  # type: ignore[attr-defined]
            done = connection.execute(query, {**table.sql_key(), "new": new, "old": old})
            if done.rowcount != 1:
                connection.rollback()
                return _nothing(Kind.LOST_RACE, "the table was changed by another commit")
            ending = True
            connection.commit()
    except SQLAlchemyError as error:
        if ending:
            return Answer(Kind.UNKNOWN, first_line(error))
        if _is_denied(error):
            return _nothing(Kind.DENIED, first_line(error))
        return _failed(error)
    return ACCEPTED


def _is_denied(error: Any) -> bool:
    original = getattr(error, "orig", None)
    if getattr(original, "pgcode", None) in DENIED_STATES:
        return True
    return "readonly database" in str(original)


# REST


def _to_rest(table: LiveTable, request: Request) -> Answer:
    from pydantic import TypeAdapter
    from pyiceberg.table.update import TableRequirement, TableUpdate

    updates = tuple(TypeAdapter(TableUpdate).validate_python(dict(one)) for one in request.updates)
    required = tuple(
        TypeAdapter(TableRequirement).validate_python(dict(one)) for one in request.requirements
    )
    answer = _posted(table, required, updates)
    if answer.kind is Kind.INVALID and _has_moved(table, request.base):
        return _nothing(Kind.LOST_RACE, answer.why)
    return answer


def _has_moved(table: LiveTable, base: State) -> bool:
    """Whether another commit changed the table. A server may then find a request wrong that names
    the state before, for example by its sequence number."""
    try:
        return table.refresh().location != base.location
    except Exception:  # the answer to the request counts
        return False


def _posted(table: LiveTable, required: Any, updates: Any) -> Answer:
    from pyiceberg import exceptions as known

    try:
        table.catalog.commit_table(table.loaded, required, updates)
    except known.CommitFailedException as error:
        return _nothing(Kind.LOST_RACE, first_line(error))
    except (known.ForbiddenError, known.UnauthorizedError) as error:
        return _nothing(Kind.DENIED, first_line(error))
    except (known.NoSuchTableError, known.BadRequestError) as error:
        return _nothing(Kind.INVALID, first_line(error))
    except Exception as error:
        return Answer(Kind.UNKNOWN, first_line(error) or type(error).__name__)
    return ACCEPTED
