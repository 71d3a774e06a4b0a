"""What a name means in a text of several statements: USE changes the schema, and temporary tables
and views hide tables of the same name."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

_TEMPORARY = "temporary"
"""Key that marks a table node whose name means a temporary table or view."""
_NO_NAMES = (exp.Parameter, exp.SessionParameter, exp.Placeholder, exp.Func)
_OF_THE_SESSION = ("pg_temp", "_session")
"""Schemas that hold a session's temporary tables, which go by their plain names too."""
_NO_SCHEMA = ("WAREHOUSE", "ROLE", "SECONDARY ROLES")
"""What USE may choose besides a catalog or a schema."""


def in_turn(
    statements: list[exp.Expr], levels: tuple[str, ...]
) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    """Yield each statement with the levels that complete its names.

    The names of temporary tables and views that earlier statements have made are marked.
    """
    hidden: set[tuple[str, ...]] = set()
    for statement in statements:
        if isinstance(statement, exp.Use):
            levels = _used(statement, levels)
        for node in statement.find_all(exp.Table) if hidden else ():
            if _hiding(node, levels, hidden) is not None:
                node.meta[_TEMPORARY] = True
        for dropped in _dropped(statement):
            hidden.discard(_hiding(dropped, levels, hidden) or ())
        made = _made(statement)
        if made is not None:
            hidden.add(_plain(made) or _completed(made, levels))
        yield statement, levels


def is_stored(node: exp.Table) -> bool:
    """Whether a name may be that of a stored table: not a temporary one, a variable (`@t`), a
    parameter, or a function."""
    name = node.this
    if isinstance(name, exp.DynamicIdentifier):
        return isinstance(name.this, exp.Literal)
    if isinstance(name, _NO_NAMES) or node.meta.get(_TEMPORARY):
        return False
    return not (name.args.get("temporary") or name.args.get("global_"))


def _used(statement: exp.Use, levels: tuple[str, ...]) -> tuple[str, ...]:
    kind, target = statement.args.get("kind"), statement.this
    if not isinstance(target, exp.Table) or (kind is not None and kind.name.upper() in _NO_SCHEMA):
        return levels
    named = tuple(part.name for part in target.parts)
    if kind is not None and kind.name.upper() == "CATALOG":
        return named
    return (*levels[: max(0, len(levels) - len(named))], *named)


def _plain(node: exp.Table) -> tuple[str, ...]:
    """Return the last part of a name that no schema qualifies, or that a session's own schema
    does; else nothing."""
    *schema, name = [part.name.lower() for part in node.parts]
    return (name,) if not schema or schema[-1] in _OF_THE_SESSION else ()


def _completed(node: exp.Table, levels: tuple[str, ...]) -> tuple[str, ...]:
    parts = [part.name.lower() for part in node.parts]
    before = levels[: max(0, len(levels) + 1 - len(parts))]
    return (*(level.lower() for level in before), *parts)


def _hiding(
    node: exp.Table, levels: tuple[str, ...], hidden: set[tuple[str, ...]]
) -> tuple[str, ...] | None:
    """Return the temporary table or view that a name means, None if it means none of them."""
    names = (_plain(node), _completed(node, levels))
    return next((name for name in names if name in hidden), None)


def _dropped(statement: exp.Expr) -> list[exp.Table]:
    """Return the tables or views that a statement drops."""
    if not isinstance(statement, exp.Drop) or statement.kind not in ("TABLE", "VIEW"):
        return []
    return [name for name in statement.args["tables"] if isinstance(name, exp.Table)]


def _made(statement: exp.Expr) -> exp.Table | None:
    """Return the temporary table or view that a statement makes."""
    if not isinstance(statement, exp.Create) or statement.find(exp.TemporaryProperty) is None:
        return None
    target = statement.this.this if isinstance(statement.this, exp.Schema) else statement.this
    return target if isinstance(target, exp.Table) else None
