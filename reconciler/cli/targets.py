"""Selects the tables of a command, and the policy of each, by names, documents and patterns.

A named table is governed by the policy under -f that selects it, else by the built-in one. Without
a name every table that some policy under -f selects is used.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.api.builtin import builtin_policy
from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.load import Documents, load
from reconciler.api.table_patterns import choose_policy, matches
from reconciler.catalog.discover import (
    find_catalogs,
    names_for,
    resolve_catalog,
    resolve_table,
    unknown_catalogs,
)
from reconciler.catalog.load import connect, list_namespaces
from reconciler.catalog.many import tables_in
from reconciler.cli.system_namespace import is_state
from reconciler.errors import UserError
from reconciler.format import plural
from reconciler.loop.ports import Target
from reconciler.loop.step import Step
from reconciler.table.observation import quoted_name

DEFAULT_DIRECTORY = "layouts"
"""Where policies usually are."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The documents and the steps of a command, in order of table name."""

    documents: Documents
    steps: tuple[Step, ...]


def select(
    table: str | None,
    files: Sequence[str],
    catalog: str | None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    timeout: float = 30.0,
) -> Selection:
    """Return the selection. Raises UserError if nothing is named, or a name or pattern matches
    nothing."""
    documents = load(files) if files else Documents()
    if table is not None:
        return Selection(documents, (_named(table, files, catalog, documents),))
    if not files:
        raise UserError(
            "name a table, or documents with -f",
            do=f"add -f {DEFAULT_DIRECTORY}"
            if Path(DEFAULT_DIRECTORY).is_dir()
            else "layoutctl observe lists the tables of a catalog",
        )
    found = list(_governed(documents, catalog, timeout))
    chosen = [
        step
        for step in found
        if (not include or _any_match(include, step.target.identifier))
        and not _any_match(exclude, step.target.identifier)
    ]
    if not chosen:
        raise _nothing(found, files, documents)
    return Selection(documents, tuple(chosen))


def _named(table: str, files: Sequence[str], catalog: str | None, documents: Documents) -> Step:
    """Return the step of a table that was named."""
    config, identifier = resolve_table(table, catalog, documents.catalogs)
    if documents.policies and governing_policy(documents, config, identifier) is None:
        _refuse_unknown_catalog(documents, identifier)
        where, name = ", ".join(files), quoted_name((config.name, *identifier))
        sys.stderr.write(
            f"note: no policy under {where} selects {name}; the built-in one is used\n"
        )
    return step_for(Target(config, identifier), documents)


def _nothing(found: Sequence[Step], files: Sequence[str], documents: Documents) -> UserError:
    """Return why no table is left. found: those that the policies select."""
    if found:
        names = [".".join(step.target.identifier) for step in found]
        return UserError(
            f"--select and --exclude leave none of {plural(len(found), 'table')}",
            details=(f"The policies select {', '.join(names[:8])}{', ...' * (len(names) > 8)}.",),
            do="widen --select or --exclude; * stays within a level, ** crosses levels",
        )
    return UserError(
        f"no table matches the policies under {', '.join(files)}",
        details=tuple(
            f"{p.origin}: {p.name} includes {', '.join(p.spec.tables.include)}"
            for p in documents.policies
        ),
        do="layoutctl observe lists all tables",
    )


def _refuse_unknown_catalog(documents: Documents, identifier: tuple[str, ...]) -> None:
    """Raise UserError if a policy would select the table, but refers to a catalog that is nowhere:
    the built-in policy is not what its author meant."""
    for policy in unknown_catalogs(documents.policies, documents.catalogs):
        reference = policy.spec.catalog.name
        if choose_policy(identifier, reference, [policy]) is not None:
            raise UserError(
                f"{policy.origin}: policy {policy.name} selects {'.'.join(identifier)} of catalog "
                f'"{reference}", which is not known here',
                details=(f"Known are: {', '.join(names_for(documents.catalogs)) or 'none'}.",),
                do="correct spec.catalogRef.name, or leave out -f to use the built-in policy",
            )


def select_tables(
    tables: Sequence[str],
    files: Sequence[str],
    catalog: str | None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    timeout: float = 30.0,
) -> Selection:
    """Return the selection of the named tables; of the documents' tables if none is named.

    Raises UserError as `select`, and for a table that is named twice or patterns beside names.
    """
    if not tables:
        return select(None, files, catalog, include=include, exclude=exclude, timeout=timeout)
    if include or exclude:
        raise UserError(
            "--select and --exclude narrow the tables of documents, and tables are named",
            do="leave out the names, or --select and --exclude",
        )
    chosen = [select(name, files, catalog, timeout=timeout) for name in tables]
    steps = [step for selection in chosen for step in selection.steps]
    known: set[tuple[str, ...]] = set()
    for step in steps:
        levels = (step.target.catalog.name, *step.target.identifier)
        if levels in known:
            raise UserError(f"{quoted_name(levels)} is named twice", do="name each table once")
        known.add(levels)
    return Selection(chosen[0].documents, tuple(steps))


def _any_match(patterns: Sequence[str], identifier: tuple[str, ...]) -> bool:
    return any(matches(pattern, identifier) for pattern in patterns)


def _governed(documents: Documents, catalog: str | None, timeout: float) -> Iterable[Step]:
    for config in _catalogs(documents, catalog):
        for identifier in sorted(_tables(config, documents, timeout)):
            if governing_policy(documents, config, identifier) is not None:
                yield step_for(Target(config, identifier), documents)


def _catalogs(documents: Documents, catalog: str | None) -> list[CatalogConfig]:
    """Return the catalogs that the policies refer to, by document or by configured name."""
    references = sorted({policy.spec.catalog.name for policy in documents.policies})
    by_document = {d.name: d.spec.catalog_name for d in documents.catalogs}
    configured = {item.config.name for item in find_catalogs(documents.catalogs)}
    names = {by_document.get(reference, reference) for reference in references}
    wanted = [name for name in sorted(names) if catalog in (None, name)]
    known = [name for name in wanted if name in configured]
    if wanted and not known:
        return [resolve_catalog(wanted[0], documents.catalogs)]
    lost = unknown_catalogs(documents.policies, documents.catalogs) if known else ()
    for policy in lost:
        sys.stderr.write(
            f"warning: {policy.origin}: policy {policy.name} governs no table: its catalog "
            f'"{policy.spec.catalog.name}" is not known here\n'
        )
    return [resolve_catalog(name, documents.catalogs) for name in known]


def _tables(
    config: CatalogConfig, documents: Documents, timeout: float
) -> Iterable[tuple[str, ...]]:
    """Return every table except those of the reconciler's own shared state."""
    connection = connect(config, timeout)
    every = map(tuple, list_namespaces(connection, config, timeout))
    spaces = [one for one in every if not is_state(config, documents.catalogs, one)]
    return tables_in(connection, config, spaces, timeout)


BUILT_IN = "built-in defaults"
"""Name of the policy of a table that none selects, as plans carry and print it."""


def governing_policy(
    documents: Documents, config: CatalogConfig, identifier: tuple[str, ...]
) -> TableLayoutPolicy | None:
    """Return the policy that governs the table. Raises UserError if two name it exactly."""
    references = {d.name for d in documents.catalogs if d.spec.catalog_name == config.name}
    for name in sorted(references or {config.name}):
        found = choose_policy(identifier, name, documents.policies)
        if found is not None:
            return found
    return None


def step_for(target: Target, documents: Documents) -> Step:
    """Return the step of a table under the policy that governs it, or under the built-in one."""
    policy = governing_policy(documents, target.catalog, target.identifier)
    if policy is None:
        policy = builtin_policy(target.identifier, target.catalog.name)
        name = BUILT_IN
    else:
        name = f"{policy.name} ({policy.origin})"
    return step_under(target, policy, name)


def step_under(target: Target, policy: TableLayoutPolicy, name: str) -> Step:
    """Return the step of a table under a given policy. name: as plans print it."""
    return Step(target, policy, name, lambda: dt.datetime.now(dt.UTC))
