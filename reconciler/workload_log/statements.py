"""The SELECT that a statement contains or amounts to: CREATE AS, INSERT, UPDATE, DELETE, MERGE."""

from __future__ import annotations

from sqlglot import exp


def as_query(statement: exp.Expr) -> exp.Expr | None:
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
