"""Extracts what a SQL query reads of each table: conditions, literals and columns, for any dialect.

Tables are looked up through `TableSchemas`; nothing is stored. `SqlReader` remembers templates, so
that a log of a hundred thousand queries from fifty templates is parsed fifty times.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import TRUE, fields_of
from reconciler.table.schema import Schema
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.column_names import (
    columns_of,
    fold_names,
    hide_ambiguous,
    hide_keys_after_commas,
    levels_of,
    real_tables,
    rename_table,
    tell_namesakes_apart,
)
from reconciler.workload_log.complexity import (
    MAX_SQL,
    MAX_STATEMENTS,
    TooComplex,
    balanced,
    check_expansion,
    check_text,
    check_tree,
)
from reconciler.workload_log.conditions import bind
from reconciler.workload_log.constants import Binding, Const
from reconciler.workload_log.early_stop import skipped_to, stops_early
from reconciler.workload_log.identity import SOURCE
from reconciler.workload_log.join_ranges import JoinRange, with_ranges
from reconciler.workload_log.lift import decimals_as_numbers, lift
from reconciler.workload_log.parameters import with_question_marks
from reconciler.workload_log.prepared import immediate
from reconciler.workload_log.scans import Path, Scan, folded, scans_of
from reconciler.workload_log.session_names import in_turn, is_stored
from reconciler.workload_log.statements import as_query
from reconciler.workload_log.tables import KnownTable, TableSchemas

MAX_TEMPLATES = 4096
MAX_TEMPLATE_TEXT = 2 << 20
"""Templates remembered, and characters of them together: a parsed tree takes a hundred times its
text."""

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # unparsable text is counted, not logged
_OWN = re.compile(r"(?:/\*|--)\s*layoutctl|layout\.attempt-id", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableRead:
    """One scan of one table by one query."""

    table: KnownTable
    """The table."""
    fragment: Fragment
    """What the scan asks of the table. Its position, weight and measures are those of one execution
    of which nothing is known."""
    note: str = ""
    """Why it counts as a full scan, "" if it does not."""
    unknown: tuple[str, ...] = ()
    """Columns in its conditions that the table does not have; these conditions count as none."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A query that reads no known table."""

    reason: str
    """Why it is not counted, as imports show it."""


@dataclass(frozen=True, slots=True)
class Session:
    """What unqualified names and times without a zone mean in a query."""

    levels: tuple[str, ...] = ()
    """Catalog and schema of unqualified names."""
    zone: dt.tzinfo = dt.UTC
    """Time zone of times without a zone."""


def _named_in_conditions(query: exp.Expr) -> tuple[str, ...]:
    """Return the columns that WHERE names in a query on one table, structs by their own name.

    None of a query on several tables, or of one that makes columns of its own: there it is not
    known to which table a name would belong.
    """
    tables = list(query.find_all(exp.Table))
    if len(tables) != 1 or query.find(exp.Lateral, exp.Unnest, exp.Lambda, exp.Subquery, exp.CTE):
        return ()
    own = {part.name.lower() for part in tables[0].parts} | {tables[0].alias_or_name.lower()}
    named = []
    for where in query.find_all(exp.Where):
        for column in where.find_all(exp.Column):
            parts = [part.name.lower() for part in column.parts]
            named.append(next((part for part in parts[:-1] if part not in own), parts[-1]))
    aliases = {one.alias.lower() for one in query.find_all(exp.Alias)}
    return tuple(
        name
        for name in dict.fromkeys(named)
        if name and name[0] not in "_$" and name not in aliases
    )


@dataclass(frozen=True, slots=True)
class _Template:
    """A template's scans, or why it has none."""

    scans: tuple[tuple[Scan, tuple[int, ...]], ...] = ()
    """The scans of known tables, each with the ids of the fields read."""
    unknown: tuple[str, ...] = ()
    """Columns of conditions that the one table of the query does not have."""
    full_scans: tuple[KnownTable, ...] = ()
    """Tables that count as fully scanned."""
    merged: tuple[KnownTable, ...] = ()
    """Tables of `full_scans` that the text merges into."""
    reason: str = ""
    """Why it has no scans, or why its text was not understood; "" otherwise."""


class _NotLifted(Exception):
    """A sentinel is not a literal in the parsed tree."""


class SqlReader:
    """Reads queries of one dialect against one catalog; remembers the templates seen."""

    def __init__(self, dialect: str, tables: TableSchemas):
        self.dialect = dialect
        self._tables = tables
        self._templates: OrderedDict[tuple[str, tuple[str, ...]], _Template | None] = OrderedDict()
        self._size = 0

    def extract(
        self,
        sql: str,
        event_ms: int,
        session: Session = Session(),
        joined: Sequence[JoinRange] = (),
    ) -> list[TableRead] | Skipped:
        """Return what a query reads of known tables, one item for each scan; Skipped if it reads
        none. A table in a text that is not understood counts as fully scanned. event_ms: time of
        the query in epoch milliseconds, for which now() stands. joined: what its joins asked of
        tables while it ran."""
        if _OWN.search(sql):
            return Skipped(skip_reasons.OWN_JOB)
        sql = immediate(sql, self.dialect)
        lifted = lift(sql) if len(sql) <= MAX_SQL else None
        literals: dict[str, Const] = lifted.literals if lifted else {}
        template = self._template(lifted.template, session.levels, literals) if lifted else None
        if template is None:
            literals = {}
            template = self._template(sql, session.levels, {}) or _Template(
                reason=skip_reasons.UNPARSABLE
            )
        if not template.scans and not template.full_scans:
            return Skipped(template.reason)
        binding = Binding(event_ms, session.zone, self.dialect, literals)
        engine = self.dialect or "sql"
        merged = {one.uuid for one in template.merged}
        return [
            TableRead(
                scan.table, _fragment(scan, columns, binding, engine), unknown=template.unknown
            )
            for scan, columns in with_ranges(template.scans, joined)
        ] + [
            TableRead(
                table, _full_scan(table, event_ms, engine, merged=table.uuid in merged),
                template.reason,
            )
            for table in template.full_scans
        ]  # fmt: skip

    def _template(
        self, text: str, levels: tuple[str, ...], literals: dict[str, Const]
    ) -> _Template | None:
        key = (text, levels)
        if key in self._templates:
            self._templates.move_to_end(key)
            return self._templates[key]
        found = self._analysed(text, levels, literals)
        self._templates[key] = found
        self._size += len(text)
        while len(self._templates) > MAX_TEMPLATES or self._size > MAX_TEMPLATE_TEXT:
            (oldest, _), _ = self._templates.popitem(last=False)
            self._size -= len(oldest)
        return found

    def _analysed(
        self, text: str, levels: tuple[str, ...], literals: dict[str, Const]
    ) -> _Template | None:
        """None if the template's literals could not be lifted safely."""
        try:
            if not literals and len(text) > MAX_SQL:
                raise TooComplex
            check_text(text, self.dialect)
            text = decimals_as_numbers(text, self.dialect)
            text = with_question_marks(text, self.dialect)
            statements = [s for s in sqlglot.parse(text, dialect=self.dialect or None) if s]
            if len(statements) > MAX_STATEMENTS:
                raise TooComplex
            _check_lifted(statements, literals)
            return self._statements(statements, levels)
        except _NotLifted:
            return None
        except TooComplex:
            return self._full_scans_in(text, levels, skip_reasons.TOO_COMPLEX)
        except (SqlglotError, RecursionError, ValueError, KeyError,
                TypeError, AttributeError, IndexError) as error:  # fmt: skip
            if literals:
                return None
            unresolved = isinstance(error, OptimizeError)
            why = skip_reasons.UNRESOLVED if unresolved else skip_reasons.UNPARSABLE
            return self._full_scans_in(text, levels, why)

    def _statements(self, statements: list[exp.Expr], levels: tuple[str, ...]) -> _Template:
        scans: list[tuple[Scan, tuple[int, ...]]] = []
        unknown: tuple[str, ...] = ()
        reason = skip_reasons.NOT_A_QUERY
        for statement, within in in_turn(statements, levels):
            query = as_query(statement)
            if query is None:
                continue
            check_tree(balanced(query))
            into = self._merged(statement, within)
            named = _named_in_conditions(query)
            found = self._scans(query, within)
            if isinstance(found, str):
                reason = found
                continue
            reason = skip_reasons.UNKNOWN_TABLES
            if len(found) == 1:
                have = columns_of(found[0].table.schema)
                unknown += tuple(name for name in named if name not in have)
            for scan in _marked(found, into):
                scans.append((scan, _projection(scan.table.schema, scan.columns)))
            if any(_time_travel(node) for node in query.find_all(exp.Table)):
                return _Template(reason=skip_reasons.TIME_TRAVEL)
        return _Template(tuple(scans), unknown, reason=reason)

    def _merged(self, statement: exp.Expr, levels: tuple[str, ...]) -> KnownTable | None:
        """Return the table that a MERGE writes; None for other statements."""
        target = statement.this if isinstance(statement, exp.Merge) else None
        if not isinstance(target, exp.Table) or not is_stored(target):
            return None
        return self.resolve(levels_of(target.parts, spelled=True), levels)

    def _scans(self, query: exp.Expr, levels: tuple[str, ...]) -> list[Scan] | str:
        """Return the scans of a query, or why it has none."""
        known: dict[str, KnownTable] = {}
        metadata = False
        fold_names(query)
        tell_namesakes_apart(query)
        columns_named = list(query.find_all(exp.Column))
        for node in real_tables(query):
            parts = levels_of(node.parts, spelled=True)
            table = self.resolve(parts, levels)
            if table is not None:
                rename_table(columns_named, node, f"layoutctl_t{len(known)}")
                known[node.name] = table
            elif self._reads_metadata(parts, levels):
                metadata = True
        if not known:
            return skip_reasons.TIME_TRAVEL if metadata else skip_reasons.UNKNOWN_TABLES
        columns = {key: columns_of(table.schema) for key, table in known.items()}
        check_expansion(query, {key: len(names) for key, names in columns.items()})
        hide_ambiguous(query, columns, self.dialect)
        hide_keys_after_commas(query)
        qualified = qualify(
            query,
            dialect=self.dialect or None,
            schema=MappingSchema(dict[str, object](columns), normalize=False),
            validate_qualify_columns=False,
            quote_identifiers=False,
        )
        for identifier in qualified.find_all(exp.Identifier):
            identifier.set("quoted", True)  # equals the same column when written out
        found = scans_of(qualified, known)
        if not found and any(stops_early(node) for node in qualified.find_all(exp.Select)):
            return skip_reasons.STOPS_EARLY
        return found

    def resolve(self, parts: tuple[str, ...], levels: tuple[str, ...]) -> KnownTable | None:
        """Resolve the longest name first: session levels complete what the query left out."""
        if levels and len(parts) <= len(levels):
            table = self._tables.resolve((*levels[: len(levels) + 1 - len(parts)], *parts))
            if table is not None:
                return table
            table = self._tables.resolve((*levels, *parts))
            if table is not None:
                return table
            if len(parts) == 1:
                return None
        return self._tables.resolve(parts)

    def _reads_metadata(self, parts: tuple[str, ...], levels: tuple[str, ...]) -> bool:
        """Whether the name is `t.files`, `t.branch_x` or `"t$files"` of a known table."""
        parts = tuple(part.lower() for part in parts)
        base, dollar, _ = parts[-1].partition("$")
        if dollar:
            return base != "" and self.resolve((*parts[:-1], base), levels) is not None
        named = _METADATA.fullmatch(parts[-1]) is not None and len(parts) > 1
        return named and self.resolve(parts[:-1], levels) is not None

    def _full_scans_in(self, text: str, levels: tuple[str, ...], reason: str) -> _Template:
        named = self._named(_TABLE_NAME, text, levels)
        merged = self._named(_MERGED_NAME, text, levels)
        return _Template(full_scans=named, merged=merged, reason=reason)

    def _named(
        self, pattern: re.Pattern[str], text: str, levels: tuple[str, ...]
    ) -> tuple[KnownTable, ...]:
        """Return the known tables named in unparsable text. pattern: its groups are names."""
        found: dict[str, KnownTable] = {}
        for match in pattern.finditer(text[:MAX_SQL]):
            name = next(filter(None, match.groups()))
            parts = tuple(_QUOTES.sub("", part) for part in _NAME_PART.findall(name))
            table = self.resolve(parts, levels) if len(parts) <= MAX_LEVELS else None
            if table is not None:
                found[table.uuid] = table
        return tuple(found.values())


_METADATA = re.compile(
    r"(?:all_)?(?:files|data_files|delete_files|manifests|entries)|history|snapshots|refs"
    r"|partitions|metadata_log_entries|position_deletes|changes"
    r"|(?:branch|tag|snapshot_id|at_timestamp)_\w+"
)
MAX_LEVELS = 32
_IDENTIFIER = r"(?:\"[^\"]{1,256}+\"|`[^`]{1,256}+`|\[[^\]]{1,256}+\]|(?<!\w)\w{1,256}+(?!\w))"
_NAME_PART = re.compile(_IDENTIFIER)
_DOTTED = rf"{_IDENTIFIER}(?>(?:\s*+\.\s*+{_IDENTIFIER})*)"
_TABLE_NAME = re.compile(
    rf"({_IDENTIFIER}(?>(?:\s*+\.\s*+{_IDENTIFIER})+))"
    rf"|\b(?:FROM|JOIN|INTO|USING|UPDATE)\s++({_DOTTED})",
    re.IGNORECASE,
)
"""Names in full, and names after FROM and similar words."""

_MERGED_NAME = re.compile(
    rf"\bMERGE\s++(?:WITH\s++SCHEMA\s++EVOLUTION\s++)?INTO\s++({_DOTTED})", re.IGNORECASE
)
_QUOTES = re.compile(r"[\"`\[\]]")


def _fragment(scan: Scan, projection: tuple[int, ...], binding: Binding, engine: str) -> Fragment:
    hidden = scan.table.hidden
    conditions = [one for one in scan.conditions if not hidden or not _only(one, hidden)]
    found = bind(conditions, scan.table.schema, binding)
    predicate = skipped_to(scan.first, scan.table, engine) or found.predicate
    predicate_columns = fields_of(predicate)
    columns = projection
    if not set(predicate_columns) <= set(projection):
        columns = tuple(sorted({*projection, *predicate_columns}))
    return Fragment(
        SOURCE, 0, scan.table.uuid, predicate, found.literals, found.moving, columns, 1.0,
        binding.event_ms, engine, unbound=found.unbound, elsewhere=scan.elsewhere,
        merged=scan.merged,
    )  # fmt: skip


def _only(condition: exp.Expr, columns: frozenset[str]) -> bool:
    """Whether a condition is on these columns alone."""
    return all(one.name.lower() in columns for one in condition.find_all(exp.Column))


def _marked(scans: list[Scan], into: KnownTable | None) -> list[Scan]:
    """Mark one scan of the table that a MERGE writes, which may read it as a source, too."""
    for number, scan in enumerate(scans):
        if scan.table == into:
            return [*scans[:number], replace(scan, merged=True), *scans[number + 1 :]]
    return scans


def _full_scan(table: KnownTable, event_ms: int, engine: str, *, merged: bool) -> Fragment:
    everything = tuple(sorted(field.field_id for field in table.schema.fields))
    return Fragment(
        SOURCE, 0, table.uuid, TRUE, (), (), everything, 1.0, event_ms, engine, full_scan=True,
        merged=merged,
    )  # fmt: skip


def _check_lifted(statements: list[exp.Expr], literals: dict[str, Const]) -> None:
    if not literals:
        return
    seen = [
        node.this
        for statement in statements
        for node in statement.find_all(exp.Literal, exp.HexString)
        if node.this in literals
    ]
    if len(seen) != len(literals) or len(set(seen)) != len(literals):
        raise _NotLifted


def _projection(schema: Schema, columns: frozenset[Path]) -> tuple[int, ...]:
    """Return the field ids of the leaves below each column path."""
    return tuple(
        sorted(
            field.field_id
            for field in schema.fields
            if any(_covers(path, folded(field.path)) for path in columns)
        )
    )


def _covers(path: Path, leaf: Path) -> bool:
    """Whether a path reads a leaf: one below it, or one (a list) inside of which it continues."""
    common = min(len(path), len(leaf))
    return path[:common] == leaf[:common]


def _time_travel(node: exp.Table) -> bool:
    return bool(node.args.get("version") or node.args.get("when") or node.args.get("changes"))
