"""`reconciler.Table`: a table in a notebook, by the code that the verbs use.

    from reconciler import Table

    orders = Table("prod.sales.orders")
    orders.observe()                                        # as layoutctl observe
    orders.plan()                                           # as layoutctl plan
    orders.explain("SELECT * FROM sales.orders WHERE id = 7")    # as layoutctl explain --query

Each result prints as the verb does, is shown as HTML by a notebook, and has the verb's document
(`-o json`) in `document`. Nothing is written to the catalog. Catalogs are found as the verbs find
them. Errors are `reconciler.errors.ReconcilerError`, which say what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.step import Step


@dataclass(frozen=True)
class Shown:
    """A result: text for people, a document for programs."""

    text: str
    """What the verb prints, at most 100 columns wide."""
    document: Mapping[str, Any] = field(repr=False)
    """What the verb prints with `-o json`: bytes, counts and milliseconds, unrounded."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """Return the text for a notebook, in a font of fixed width."""
        style = "white-space:pre;overflow-x:auto;line-height:1.3"
        return f'<pre style="{style}">{escape(self.text)}</pre>'


class Table:
    """One table of a configured catalog."""

    def __init__(self, name: str, *, catalog: str | None = None, files: Sequence[str] = (),
                 timeout: float = 30.0) -> None:  # fmt: skip
        """name: catalog.namespace.table. catalog: its name, where the first level is not one.
        files: documents, as with -f. timeout: seconds for the catalog to answer.

        Raises UserError for a name that no configured catalog is meant by. Nothing is read yet.
        """
        from reconciler.api.load import Documents, load
        from reconciler.catalog.discover import resolve_table

        self._documents = load(files) if files else Documents()
        self._config, self._levels = resolve_table(name, catalog, self._documents.catalogs)
        self._timeout = timeout

    @property
    def name(self) -> str:
        """Return catalog.namespace.table, with levels in backticks that need them."""
        from reconciler.table.observation import quoted_name

        return quoted_name((self._config.name, *self._levels))

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def observe(self) -> Shown:
        """Return the table's layout, from metadata alone."""
        from reconciler.cli.observe import shown_table
        from reconciler.cli.options import Output

        seen = self._actor().observe(self._step().target)
        return Shown(shown_table(seen, Output.TABLE), json.loads(shown_table(seen, Output.JSON)))

    def plan(self) -> Shown:
        """Return what would be rewritten, its cost and its saving; under the policy that governs
        the table among `files`, else under the built-in one."""
        from reconciler.cli.plan import preview

        return Shown(*preview(self._step(), self._actor()))

    def explain(self, sql: str, *, dialect: str = "spark") -> Shown:
        """Return which data files a query opens, which it skips, and by which condition.

        sql: a SELECT that reads the table, in a dialect of sqlglot. Raises UserError if it does
        not, or cannot be parsed.
        """
        from reconciler.cli.explain import query_document, table_document
        from reconciler.render.explain_text import render
        from reconciler.render.terminal import width

        step, actor = self._step(), self._actor()
        proposal = step.propose(actor, refresh=True)
        found = query_document(proposal, step.target, actor, sql, dialect)
        body = {**table_document(proposal), **found}
        return Shown(render(body, width(), show_literals=False, verbose=False), body)

    def _step(self) -> Step:
        from reconciler.cli.targets import step_for
        from reconciler.loop.ports import Target

        return step_for(Target(self._config, self._levels), self._documents)

    def _actor(self) -> LocalActor:
        from reconciler.cli.shared import actor_on

        return actor_on(self._config, (), self._timeout, False)
