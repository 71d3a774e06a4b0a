"""Writes the Grafana board of the chart, files/dashboard.json.

    python -m charts.board

It needs grafana-foundation-sdk, which is a tool of developers only. The board names no data source:
its variable chooses one, and another the namespaces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parent / "layout-reconciler" / "files" / "dashboard.json"
DAY = "1d"
NAMESPACES = 'namespace=~"$namespace"'

STATS: tuple[tuple[str, str, str], ...] = (
    ("Saved, 30 days", f"sum(increase(layout_saved_bytes_total{{{NAMESPACES}}}[30d]))", "bytes"),
    ("Lost, 30 days", f"sum(increase(layout_lost_bytes_total{{{NAMESPACES}}}[30d]))", "bytes"),
    ("Spent, 30 days", f"sum(increase(layout_spent_bytes_total{{{NAMESPACES}}}[30d]))", "bytes"),
    ("Wait for approval",
     f'sum(layout_tables{{{NAMESPACES},reason="AwaitingApproval"}}) or vector(0)', "short"),
    ("Stalled", f"sum(layout_tables_stalled{{{NAMESPACES}}}) or vector(0)", "short"),
    ("Jobs running", f'sum(layout_jobs{{{NAMESPACES},phase="Running"}}) or vector(0)', "short"),
)  # fmt: skip
"""(title, query, unit) of the single numbers."""

GRAPHS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Saved against spent, bytes of reading a day", "bytes", (
        ("namespace:layout_saved_bytes:increase1d{" + NAMESPACES + "}", "saved, {{namespace}}"),
        ("namespace:layout_lost_bytes:increase1d{" + NAMESPACES + "}", "lost, {{namespace}}"),
        ("namespace:layout_spent_bytes:increase1d{" + NAMESPACES + "}", "spent, {{namespace}}"),
    )),
    ("Money a day, by the prices of the catalogs", "short", (
        ("namespace_currency_kind:layout_money:increase1d{" + NAMESPACES + "}",
         "{{kind}}, {{currency}}, {{namespace}}"),
    )),
    ("Tables by what they wait for", "short", (
        (f"sum by (converged, reason) (layout_tables{{{NAMESPACES}}})", "{{converged}} {{reason}}"),
    )),
    ("Jobs that ended, an hour", "short", (
        (f"sum by (cause) (increase(layout_jobs_finished_total{{{NAMESPACES}}}[1h]))", "{{cause}}"),
    )),
    ("Bytes rewritten a day", "bytes", (
        (f"sum by (namespace) (increase(layout_rewritten_bytes_total{{{NAMESPACES}}}[1d]))",
         "{{namespace}}"),
    )),
    ("Budgets: bytes spent and reserved", "bytes", (
        (f"sum by (policy, state) (layout_budget_bytes{{{NAMESPACES}}})", "{{policy}} {{state}}"),
    )),
    ("Reconciles that fail, share", "percentunit", (
        ('sum by (kind) (rate(layout_reconcile_duration_seconds_count{result="error"}[15m])) / '
         "sum by (kind) (rate(layout_reconcile_duration_seconds_count[15m]))", "{{kind}}"),
    )),
    ("Oldest object in the queue", "s", (
        ("max by (kind) (layout_queue_oldest_seconds)", "{{kind}}"),
    )),
)  # fmt: skip
"""(title, unit, queries with their legends) of the graphs over time."""


def board() -> dict[str, Any]:
    """The board as Grafana imports it."""
    from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable
    from grafana_foundation_sdk.builders.dashboard import QueryVariable as Variable
    from grafana_foundation_sdk.builders.stat import Panel as Stat
    from grafana_foundation_sdk.builders.timeseries import Panel as Graph
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    built = (
        Dashboard("Table layout")
        .uid("layout-reconciler")
        .tags(["iceberg", "layout"])
        .refresh("1m")
        .time("now-30d", "now")
        .readonly()
        .with_variable(DatasourceVariable("source").label("Data source").type("prometheus"))
        .with_variable(
            Variable("namespace")
            .label("Namespace")
            .datasource(_source())
            .query("label_values(layout_tables, namespace)")
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    for title, query, unit in STATS:
        built = built.with_panel(_panel(Stat(), title, unit, ((query, ""),)).height(4).span(4))
    for title, unit, queries in GRAPHS:
        built = built.with_panel(_panel(Graph(), title, unit, queries).height(8).span(12))
    found: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(built.build()))
    return found


def _source() -> Any:
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    return DataSourceRef(type_val="prometheus", uid="${source}")


def _panel(panel: Any, title: str, unit: str, queries: tuple[tuple[str, str], ...]) -> Any:
    from grafana_foundation_sdk.builders.prometheus import Dataquery

    made = panel.title(title).unit(unit).datasource(_source())
    for number, (query, legend) in enumerate(queries):
        asked = Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number))
        made = made.with_target(asked)
    return made


def text() -> str:
    return json.dumps(board(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    BOARD.write_text(text())
