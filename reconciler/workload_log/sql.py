"""Extracts what a SQL query reads of each table: conditions, literals and columns, for any dialect.

`extract` is pure: tables are looked up through `TableSchemas`. `SqlReader` remembers templates, so
that a log of a hundred thousand queries from fifty templates is parsed fifty times.
"""

from __future__ import annotations

import datetime as dt
import difflib
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from reconciler.errors import UserError
from reconciler.queries.predicate import TRUE, Literal, Predicate, fields_of
from reconciler.table.schema import Schema
from reconciler.workload_log.complexity import (
    MAX_SQL,
    MAX_STATEMENTS,
    TooComplex,
    balanced,
    check_expansion,
    check_text,
    check_tree,
)
from reconciler.workload_log.conditions import Bound, bind
from reconciler.workload_log.fold import Binding, Const
from reconciler.workload_log.lift import PLAIN_DECIMAL, lift
from reconciler.workload_log.prepared import immediate
from reconciler.workload_log.scans import Scan, may_be_comma, scans_of
from reconciler.workload_log.tables import KnownTable, TableSchemas

MAX_TEMPLATES = 4096

NOT_A_QUERY = "not a query"
UNKNOWN_TABLES = "no table of this catalog"
OWN_JOB = "our own job"
TIME_TRAVEL = "reads an older snapshot or a metadata table"
UNPARSABLE = "not parsable"
TOO_COMPLEX = "too complex to analyse"

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # unparsable text is counted, not logged

_OWN = re.compile(r"(?:/\*|--)\s*layoutctl|layout\.attempt-id", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Demand:
    """One scan of one table by one query.

    The fields are those of `queries.fragments.Fragment`; note: why it counts as a full scan, or "".
    """

    table: KnownTable
    predicate: Predicate
    literals: tuple[Literal, ...]
    moving: tuple[int | None, ...]
    projection: tuple[int, ...]
    unbound: Predicate | None = None
    full_scan: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """The query reads no known table; the reason is shown and counted."""

    reason: str


@dataclass(frozen=True, slots=True)
class Session:
    """The meaning of unqualified names and of times without a zone. levels: catalog and schema
    names."""

    levels: tuple[str, ...] = ()
    zone: dt.tzinfo = dt.UTC


def extract(
    sql: str,
    dialect: str,
    tables: TableSchemas,
    event_ms: int,
    session: Session = Session(),
) -> list[Demand] | Skipped:
    """Return the demands of one query. dialect: sqlglot's name, "" for plain SQL."""
    return SqlReader(dialect, tables).extract(sql, event_ms, session)


def check_dialect(name: str) -> str:
    """Return sqlglot's name of a dialect, "" for plain SQL. Raises UserError with the valid
    names."""
    known = sorted(d.value for d in Dialects if d.value)
    folded = _DIALECT_NAMES.get(name.strip().lower(), name.strip().lower())
    if folded and folded not in known:
        near = difflib.get_close_matches(folded, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}, ansi"
        raise UserError(f'"{name}" is not a dialect', do=hint)
    return folded


def unknown_columns(sql: str, dialect: str, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a query on one table that the schema does not have, in the query's
    order.

    An import drops their conditions silently, as it must; a person needs to see a typo. None are
    returned of a text that cannot be parsed or is too complex.
    """
    try:
        check_text(sql, dialect)
        statements = [s for s in sqlglot.parse(sql, dialect=dialect or None) if s]
    except (TooComplex, SqlglotError, RecursionError, ValueError):
        return ()
    if len(statements) != 1 or len(list(statements[0].find_all(exp.Table))) != 1:
        return ()
    query = statements[0]
    known = set(_columns(schema)) | {one.alias.lower() for one in query.find_all(exp.Alias)}
    known |= {one.alias_or_name.lower() for one in query.find_all(exp.Table, exp.Subquery, exp.CTE)}
    named = [column.parts[0].name.lower() for column in query.find_all(exp.Column)]
    own = {part.name.lower() for node in query.find_all(exp.Table) for part in node.parts}
    return tuple(dict.fromkeys(n for n in named if n and n not in known | own))


SPELLED = "spelled"
"""Key under which a folded identifier keeps the query's spelling."""

_DIALECT_NAMES = {"ansi": "", "sparksql": "spark", "postgresql": "postgres", "flink": "spark"}


@dataclass(frozen=True, slots=True)
class _Template:
    """A template's scans, or why it has none. unread: tables that count as fully scanned."""

    scans: tuple[tuple[Scan, tuple[int, ...]], ...] = ()
    unread: tuple[KnownTable, ...] = ()
    reason: str = ""


class _NotLifted(Exception):
    """A sentinel is not a literal in the parsed tree."""


class SqlReader:
    """Reads queries of one dialect against one catalog; remembers the templates seen."""

    def __init__(self, dialect: str, tables: TableSchemas):
        self.dialect = dialect
        self._tables = tables
        self._templates: OrderedDict[tuple[str, tuple[str, ...]], _Template | None] = OrderedDict()

    def extract(
        self, sql: str, event_ms: int, session: Session = Session()
    ) -> list[Demand] | Skipped:
        if _OWN.search(sql):
            return Skipped(OWN_JOB)
        sql = immediate(sql, self.dialect)
        lifted = lift(sql) if len(sql) <= MAX_SQL else None
        literals: dict[str, Const] = lifted.literals if lifted else {}
        template = self._template(lifted.template, session.levels, literals) if lifted else None
        if template is None:
            literals = {}
            template = self._template(sql, session.levels, {}) or _Template(reason=UNPARSABLE)
        if not template.scans and not template.unread:
            return Skipped(template.reason)
        binding = Binding(event_ms, session.zone, self.dialect, literals)
        demands = [_demand(scan, projection, binding) for scan, projection in template.scans]
        return demands + [_full_scan(table, template.reason) for table in template.unread]

    def _template(
        self, text: str, levels: tuple[str, ...], literals: dict[str, Const]
    ) -> _Template | None:
        key = (text, levels)
        if key in self._templates:
            self._templates.move_to_end(key)
            return self._templates[key]
        found = self._analysed(text, levels, literals)
        self._templates[key] = found
        if len(self._templates) > MAX_TEMPLATES:
            self._templates.popitem(last=False)
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
            statements = [s for s in sqlglot.parse(text, dialect=self.dialect or None) if s]
            if len(statements) > MAX_STATEMENTS:
                raise TooComplex
            _check_lifted(statements, literals)
            return self._statements(statements, levels)
        except _NotLifted:
            return None
        except TooComplex:
            return _Template(unread=self._named(text, levels), reason=TOO_COMPLEX)
        except (SqlglotError, RecursionError, ValueError, KeyError,
                TypeError, AttributeError, IndexError):  # fmt: skip
            if literals:
                return None
            return _Template(unread=self._named(text, levels), reason=UNPARSABLE)

    def _statements(self, statements: list[exp.Expr], levels: tuple[str, ...]) -> _Template:
        scans: list[tuple[Scan, tuple[int, ...]]] = []
        reason = NOT_A_QUERY
        for statement in statements:
            query = _as_query(statement)
            if query is None:
                continue
            check_tree(balanced(query))
            found = self._scans(query, levels)
            if isinstance(found, str):
                reason = found
                continue
            reason = UNKNOWN_TABLES
            for scan in found:
                scans.append((scan, _projection(scan.table.schema, scan.columns)))
            if any(_time_travel(node) for node in query.find_all(exp.Table)):
                return _Template(reason=TIME_TRAVEL)
        return _Template(tuple(scans), reason=reason)

    def _scans(self, query: exp.Expr, levels: tuple[str, ...]) -> list[Scan] | str:
        """Return the scans of a query, or why it has none."""
        known: dict[str, KnownTable] = {}
        metadata = False
        _fold_names(query)
        _tell_namesakes_apart(query)
        columns_named = list(query.find_all(exp.Column))
        for node in _real_tables(query):
            parts = _levels(node.parts, spelled=True)
            table = self._resolve(parts, levels)
            if table is not None:
                _rename_table(columns_named, node, f"layoutctl_t{len(known)}")
                known[node.name] = table
            elif self._reads_metadata(parts, levels):
                metadata = True
        if not known:
            return TIME_TRAVEL if metadata else UNKNOWN_TABLES
        columns = {key: _columns(table.schema) for key, table in known.items()}
        check_expansion(query, {key: len(names) for key, names in columns.items()})
        _hide_ambiguous(query, columns, self.dialect)
        _hide_keys_after_commas(query)
        qualified = qualify(
            query,
            dialect=self.dialect or None,
            schema=MappingSchema(dict[str, object](columns), normalize=False),
            validate_qualify_columns=False,
            quote_identifiers=False,
        )
        for identifier in qualified.find_all(exp.Identifier):
            identifier.set("quoted", True)  # equals the same column when written out
        return scans_of(qualified, known)

    def _resolve(self, parts: tuple[str, ...], levels: tuple[str, ...]) -> KnownTable | None:
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
            return base != "" and self._resolve((*parts[:-1], base), levels) is not None
        named = _METADATA.fullmatch(parts[-1]) is not None and len(parts) > 1
        return named and self._resolve(parts[:-1], levels) is not None

    def _named(self, text: str, levels: tuple[str, ...]) -> tuple[KnownTable, ...]:
        """Return the known tables named in unparsable text, after FROM and similar words or in
        full."""
        found: dict[str, KnownTable] = {}
        for match in _TABLE_NAME.finditer(text[:MAX_SQL]):
            name = match.group(1) or match.group(2)
            parts = tuple(_QUOTES.sub("", part) for part in _NAME_PART.findall(name))
            table = self._resolve(parts, levels) if len(parts) <= MAX_LEVELS else None
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
_TABLE_NAME = re.compile(
    rf"({_IDENTIFIER}(?:\s*+\.\s*+{_IDENTIFIER})++)"
    rf"|\b(?:FROM|JOIN|INTO|USING|UPDATE)\s++({_IDENTIFIER}(?:\s*+\.\s*+{_IDENTIFIER})*+)",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"[\"`\[\]]")


def _demand(scan: Scan, projection: tuple[int, ...], binding: Binding) -> Demand:
    bound: Bound = bind(list(scan.conditions), scan.table.schema, binding)
    predicate_columns = fields_of(bound.predicate)
    columns = projection
    if not set(predicate_columns) <= set(projection):
        columns = tuple(sorted({*projection, *predicate_columns}))
    return Demand(scan.table, bound.predicate, bound.literals, bound.moving, columns, bound.unbound)


def _full_scan(table: KnownTable, reason: str) -> Demand:
    everything = tuple(sorted(field.field_id for field in table.schema.fields))
    return Demand(table, TRUE, (), (), everything, full_scan=True, note=reason)


def decimals_as_numbers(text: str, dialect: str) -> str:
    """Replace DECIMAL '-1.5' by (-1.5), its value: the type follows from the digits.

    sqlglot's tree does not distinguish it from CAST('-1.5' AS DECIMAL), whose scale is zero in most
    engines. Raises SqlglotError.
    """
    if _MAYBE_DECIMAL.search(text) is None:
        return text
    pieces, done = [], 0
    tokens = Dialect.get_or_raise(dialect or None).tokenize(text)
    for kind, value in pairwise(tokens):
        typed = kind.token_type == TokenType.DECIMAL and value.token_type == TokenType.STRING
        if typed and _PLAIN_DECIMAL.fullmatch(value.text):
            pieces += [text[done : kind.start], f"({value.text})"]
            done = value.end + 1
    return "".join([*pieces, text[done:]])


_MAYBE_DECIMAL = re.compile(r"\b(?:DECIMAL|NUMERIC)\s*'", re.IGNORECASE)
_PLAIN_DECIMAL = re.compile(PLAIN_DECIMAL)


def _check_lifted(statements: list[exp.Expr], literals: dict[str, Const]) -> None:
    if not literals:
        return
    seen = [
        node.this
        for statement in statements
        for node in statement.find_all(exp.Literal)
        if node.this in literals
    ]
    if len(seen) != len(literals) or len(set(seen)) != len(literals):
        raise _NotLifted


def _projection(schema: Schema, columns: frozenset[str]) -> tuple[int, ...]:
    """Return the field ids of the leaves below each column path."""
    return tuple(
        sorted(
            field.field_id
            for field in schema.fields
            if any(_covers(path, field.name.lower()) for path in columns)
        )
    )


def _covers(path: str, name: str) -> bool:
    """Whether a path reads a leaf: one below it, or one (a list) inside of which it continues."""
    return name == path or name.startswith(path + ".") or path.startswith(name + ".")


def _columns(schema: Schema) -> dict[str, str]:
    """Return the top-level columns for sqlglot. Types matter only so that structs are not
    expanded."""
    return {field.name.partition(".")[0].lower(): "unknown" for field in schema.fields}


def _fold_names(query: exp.Expr) -> None:
    """Fold names, because Iceberg's engines compare them without case by default."""
    for identifier in query.find_all(exp.Identifier):
        identifier.meta[SPELLED] = identifier.name  # names of tables may differ only in case
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", True)


def _real_tables(query: exp.Expr) -> Iterator[exp.Table]:
    """Yield the table nodes that are not references to a CTE, each once."""
    seen: set[int] = set()
    for scope in traverse_scope(query):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and id(source) not in seen:
                seen.add(id(source))
                yield source
        for node in scope.tables:
            named = scope.sources.get(node.alias_or_name)
            if id(node) not in seen and (named is node or isinstance(named, exp.Table)):
                seen.add(id(node))
                yield node


def _rename_table(columns: Iterable[exp.Column], node: exp.Table, key: str) -> None:
    """Give a table a one-level unique name for sqlglot; `schema.table.column` columns follow."""
    alias, levels = node.alias or node.name, [part.name for part in node.parts]
    if len(levels) > 1:
        for column in columns:
            if not column.args.get("db"):
                continue
            own = [part.name for part in column.parts[:-1]]
            if len(own) > 1 and own == levels[-len(own) :]:
                column.set("db", None)
                column.set("catalog", None)
    node.set("this", exp.to_identifier(key, quoted=True))
    node.set("db", None)
    node.set("catalog", None)
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _tell_namesakes_apart(query: exp.Expr) -> None:
    """Give tables of one name aliases (`a.t JOIN b.t`), since their columns are written
    `a.t.column`.

    Tables whose names differ only in case are distinguished by the query's spelling.
    """
    for select in query.find_all(exp.Select):
        joins = select.args.get("joins") or []
        items = [item.this for item in (select.args.get("from_"), *joins) if item is not None]
        names = Counter(item.alias_or_name for item in items)
        tables = [
            item
            for item in items
            if isinstance(item, exp.Table)
            and not item.alias
            and len(item.parts) > 1
            and names[item.name] > 1
        ]
        folded = Counter(_levels(item.parts) for item in tables)
        for number, item in enumerate(tables):
            spelled = folded[_levels(item.parts)] > 1
            levels = _levels(item.parts, spelled)
            name = "_".join(("layoutctl", *_levels(item.parts), *([str(number)] * spelled)))
            alias = exp.to_identifier(name, quoted=True)
            for column in select.find_all(exp.Column):
                qualifier = _levels(column.parts[:-1], spelled)
                if len(qualifier) > 1 and qualifier == levels[-len(qualifier) :]:
                    column.set("table", alias.copy())
                    column.set("db", None)
                    column.set("catalog", None)
            item.set("alias", exp.TableAlias(this=alias))


def _levels(parts: Iterable[exp.Expr], spelled: bool = False) -> tuple[str, ...]:
    """Return the levels of a folded name. spelled: in the query's spelling."""
    return tuple(part.meta.get(SPELLED, part.name) if spelled else part.name for part in parts)


def _hide_ambiguous(query: exp.Expr, columns: dict[str, dict[str, str]], dialect: str) -> None:
    """Hide names that are a column and the alias of something else: their meaning depends on the
    engine.

    In HAVING; in ClickHouse, whose aliases shadow columns, everywhere.
    """
    clauses = ("having", "where", "prewhere") if dialect == "clickhouse" else ("having",)
    for select in query.find_all(exp.Select):
        aliases = {
            item.alias
            for item in select.expressions
            if isinstance(item, exp.Alias)
            and not (isinstance(item.this, exp.Column) and item.this.name == item.alias)
        }
        read = _possible_columns(select, columns)
        ambiguous = aliases if read is None else aliases & read
        for clause in (select.args.get(name) for name in clauses if ambiguous):
            for column in list(clause.find_all(exp.Column)) if clause is not None else ():
                aggregated = column.find_ancestor(exp.AggFunc, exp.Select) is not select
                if column.name in ambiguous and not column.table and not aggregated:
                    _hide(column)


def _hide_keys_after_commas(query: exp.Expr) -> None:
    """Hide the keys of USING and NATURAL after a comma: whether a table before the comma shares
    them depends on the engine."""
    for select in query.find_all(exp.Select):
        joins = [join for join in select.find_all(exp.Join) if join.parent_select is select]
        merging = [join for join in joins if join.args.get("using") or join.method == "NATURAL"]
        if not merging or not any(may_be_comma(join) for join in joins):
            continue
        keys = {key.name for join in merging for key in join.args.get("using") or ()}
        natural = any(join.method == "NATURAL" for join in merging)
        for column in list(select.find_all(exp.Column)):
            if not column.table and (natural or column.name in keys):
                _hide(column)
        for join in merging:
            join.set("using", None)
            join.set("method", None)
            join.set("on", exp.Anonymous(this="either", expressions=[]))


def _hide(column: exp.Column) -> None:
    """Put a column into a function of which nothing is known."""
    hidden: exp.Expr = exp.Anonymous(this="either", expressions=[column.copy()])
    if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        hidden = exp.alias_(hidden, column.name)
    column.replace(hidden)


def _possible_columns(select: exp.Select, columns: dict[str, dict[str, str]]) -> set[str] | None:
    """Return the columns of the tables in FROM; None if not all of them are known."""
    found: set[str] = set()
    for item in (select.args.get("from_"), *(select.args.get("joins") or [])):
        if item is None or not isinstance(item.this, exp.Table) or item.this.name not in columns:
            return None
        found |= columns[item.this.name].keys()
    return found


def _time_travel(node: exp.Table) -> bool:
    return bool(node.args.get("version") or node.args.get("when") or node.args.get("changes"))


# Statements other than SELECT, as the reads that they make


def _as_query(statement: exp.Expr) -> exp.Expr | None:
    """Return the query whose scans are the statement's reads, None if it reads no table."""
    if isinstance(statement, exp.Query):
        return statement
    if isinstance(statement, exp.Insert):
        return _with_ctes_of(statement, statement.expression)
    if isinstance(statement, exp.Cache):
        return (
            None if statement.args.get("lazy") else _with_ctes_of(statement, statement.expression)
        )
    if isinstance(statement, exp.Copy):
        return statement.this.this if isinstance(statement.this, exp.Subquery) else None
    if isinstance(statement, exp.Create):
        if not _stores_rows(statement):
            return None
        return _with_ctes_of(statement, statement.expression)
    if isinstance(statement, exp.Update):
        return _update(statement)
    if isinstance(statement, exp.Delete):
        return _delete(statement)
    if isinstance(statement, exp.Merge):
        return _merge(statement)
    return None


def _stores_rows(statement: exp.Create) -> bool:
    kind = (statement.kind or "").upper()
    return kind == "TABLE" or (
        kind == "VIEW" and statement.find(exp.MaterializedProperty) is not None
    )


def _with_ctes_of(statement: exp.Expr, query: exp.Expr | None) -> exp.Expr | None:
    if not isinstance(query, exp.Query):
        return None
    outer = statement.args.get("with_")
    if outer is not None and not query.args.get("with_"):
        query.set("with_", outer)
    query.pop()
    return query


def _reading(target: exp.Expr, others: list[exp.Expr], where: exp.Expr | None) -> exp.Select:
    """Return a SELECT of all columns of the target: copy-on-write rewrites whole rows."""
    name = target.alias_or_name
    star = exp.Column(this=exp.Star(), table=exp.to_identifier(name, quoted=True))
    select = exp.Select(expressions=[star], from_=exp.From(this=target))
    for other in others:
        select.append("joins", exp.Join(this=other, kind="CROSS"))
    if where is not None:
        select.set("where", exp.Where(this=where.this))
    return select


def _update(statement: exp.Update) -> exp.Select:
    from_ = statement.args.get("from_")
    others = [from_.this] if from_ is not None else []
    select = _reading(statement.this, others, statement.args.get("where"))
    for assignment in statement.expressions:
        if isinstance(assignment, exp.EQ):
            select.append("expressions", exp.alias_(assignment.expression, "assigned"))
    select.set("with_", statement.args.get("with_"))
    return select


def _delete(statement: exp.Delete) -> exp.Select | None:
    if not isinstance(statement.this, exp.Table):
        return None
    select = _reading(
        statement.this, statement.args.get("using") or [], statement.args.get("where")
    )
    select.set("with_", statement.args.get("with_"))
    return select


def _merge(statement: exp.Merge) -> exp.Select:
    """Return source LEFT JOIN target if unmatched source rows act, FULL if unmatched target rows
    do."""
    whens = statement.args["whens"].expressions
    by_source = any(when.args.get("source") for when in whens)
    unmatched = any(not when.args.get("matched") for when in whens)
    side = "FULL" if by_source else "LEFT" if unmatched else None
    stars: list[exp.Expr] = [
        exp.Column(this=exp.Star(), table=exp.to_identifier(item.alias_or_name, quoted=True))
        for item in (statement.args["using"], statement.this)
    ]
    select = exp.Select(expressions=stars, from_=exp.From(this=statement.args["using"]))
    select.append("joins", exp.Join(this=statement.this, side=side, on=statement.args["on"]))
    for when in whens:
        for query in when.find_all(exp.Subquery):
            select.append("expressions", exp.alias_(query, "acting"))
    select.set("with_", statement.args.get("with_"))
    return select
