"""Renders the HTML report: one self-contained page with a finding, a plot and its table per
question.

It answers, in order: why must so much be read? Are the files too small? Who gains, who loses? Does
it pay back? Can I believe the next plan? Why these files and no more? What was refused, and why?
What was not measured is listed in a box of its own. The page loads nothing and holds no values of
the table unless asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import Any, TypeVar

import numpy as np

from reconciler.api.prices import Prices
from reconciler.format import count, cpu, duration, iec, percent, plural, utc
from reconciler.plan import reasons
from reconciler.plan.money import beside, cost_text, read_money, rewriting
from reconciler.plan.rejected import Line
from reconciler.render import plots
from reconciler.render.report_model import (
    CutCurve,
    FileSizes,
    Forecast,
    KeyFiles,
    LeafMap,
    Payoff,
    QueryBytes,
    ReportData,
    ShapeBytes,
    Spans,
)
from reconciler.table.times import DAY_MS

_CSS = """
body{font:15px/1.45 system-ui,sans-serif;color:#1b1b1b;max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin:2.2rem 0 .3rem}
p.question{color:#555;margin:0 0 .6rem}svg{max-width:100%;height:auto}
table{border-collapse:collapse;font-size:.85rem;margin:.6rem 0}
th,td{padding:.15rem .7rem;border-bottom:1px solid #ddd;text-align:right;
font-variant-numeric:tabular-nums}
th:first-child,td:first-child,td.text,th.text{text-align:left}
.box{border:1px solid #b3541e;border-left-width:.4rem;padding:.4rem .8rem;margin:1.5rem 0}
code{font-size:.85rem}
"""
_MOST_ROWS = 40

Part = TypeVar("Part")
Section = tuple[str, str, str, str]
"""(finding, question, svg, table)."""


def render_html(data: ReportData) -> str:
    """Return the whole page. Raises UserError if the extra `report` is not installed."""
    sections = [section for section in _sections(data) if section is not None]
    return page(f"Layout of {data.table}", data.generated, data.facts, sections, _missing(data))


def page(
    name: str, made: str, facts: Iterable[tuple[str, str]], sections: Sequence[Section], more: str
) -> str:
    """Return a self-contained page. more: HTML below the sections."""
    body = "\n".join(_section(*section) for section in sections)
    known = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts)
    title = escape(name)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_CSS}</style></head><body>\n"
        f"<h1>{title}</h1>\n<p class=question>Generated {escape(made)} by layoutctl.</p>"
        f"\n<table>{known}</table>\n{body}\n{more}\n</body></html>\n"
    )


def _sections(data: ReportData) -> list[Section | None]:
    return [
        *(_key_files(item) for item in data.key_files),
        _if(data.leaves, _leaves),
        _if(data.sizes, _sizes),
        _if(
            data.queries if data.queries and data.queries.shapes else None,
            partial(_queries, prices=data.prices),
        ),
        _if(
            data.payoff if data.payoff and data.payoff.investments else None,
            partial(_payoff, prices=data.prices, rho=data.rho),
        ),
        _if(data.forecasts or None, _forecasts),
        _if(data.cut, partial(_cut, prices=data.prices, rho=data.rho)),
        _if(data.refused or None, _refused),
    ]


def _if(part: Part | None, make: Callable[[Part], Section]) -> Section | None:
    return None if part is None else make(part)


def _section(finding: str, question: str, svg: str, table: str) -> str:
    return (
        f"<section><h2>{escape(finding)}</h2>\n<p class=question>{escape(question)}</p>\n"
        f"{svg}\n{table}</section>"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (0,)) -> str:
    """Return a table of at most 40 rows and the number of omitted ones. text: columns that hold
    text."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if number in text else ''}>{escape(cell)}</{tag}>"
            for number, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows[:_MOST_ROWS])
    cut = len(rows) - _MOST_ROWS
    note = f"<p class=question>{count(cut)} more rows not shown.</p>" if cut > 0 else ""
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f"<table>{head}<tbody>{lines}</tbody></table>{note}"


def _missing(data: ReportData) -> str:
    """Return what the report could show, and why it does not."""
    names = {
        "key_files": "Files over the key",
        "leaves": "Leaves of the tree of cuts",
        "sizes": "File sizes",
        "queries": "Bytes per query before and after",
        "payoff": "Cost against saving over time",
        "forecasts": "Predicted against actual",
        "cut": "The cut curve",
    }
    absent = [name for name in names if not getattr(data, name)]
    items = [
        f"<li>{names[name]}: {escape(data.missing.get(name, 'no data'))}</li>" for name in absent
    ]
    items += [
        f"<li>{escape(why)}</li>" for name, why in sorted(data.missing.items()) if name not in names
    ]
    if not items:
        return ""
    return f"<div class=box><strong>Not measured</strong><ul>{''.join(items)}</ul></div>"


def _key_files(data: KeyFiles) -> Section:
    rows = []
    layouts = [("now", data.after)] if data.before is None else [
        ("before", data.before), ("after", data.after)
    ]  # fmt: skip
    for name, spans in layouts:
        opened = spans.covering(data.queried)
        rows.append([
            name, count(len(spans)), f"{mean_depth(spans):,.1f}",
            *([count(number) for number in _spread(opened)] if len(opened) else ["-"] * 3),
        ])  # fmt: skip
    heads = ("Layout", "Files", "Mean depth", "Opened by a query: least", "median", "most")
    question = "Why must so much be read? Each line is a file from its smallest to its largest key."
    return _key_finding(data), question, plots.key_files(data), table(heads, rows)


def _key_finding(data: KeyFiles) -> str:
    subject = f"A recorded range of {data.column} opens"
    probe = data.queried
    if not len(probe):
        points = np.linspace(0.0, 1.0, 201)
        probe, subject = Spans(points, points), f"A single value of {data.column} is in"
    weight = data.weight if len(data.weight) == len(probe) else np.ones(len(probe))
    now = float(np.average(data.after.covering(probe), weights=weight))
    text = f"{subject} {now:,.1f} of {count(len(data.after))} files"
    if data.before is None:
        return text
    then = float(np.average(data.before.covering(probe), weights=weight))
    return f"{text}; before, {then:,.1f} of {count(len(data.before))}"


def mean_depth(spans: Spans) -> float:
    """Return the mean number of files at a point of the key's range, over the range that files
    cover."""
    if not len(spans):
        return 0.0
    edges = np.unique(np.concatenate([spans.low, spans.high]))
    if len(edges) < 2:
        return float(len(spans))
    middle = (edges[1:] + edges[:-1]) / 2
    width = np.diff(edges)
    depth = spans.covering(Spans(middle, middle))
    covered = depth > 0
    return float(np.average(depth[covered], weights=width[covered])) if covered.any() else 0.0


def _spread(numbers: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    return float(numbers.min()), float(np.median(numbers)), float(numbers.max())


def _leaves(data: LeafMap) -> Section:
    held, number = float(data.bytes.sum()), len(data.bytes)
    share = float(data.bytes @ data.reads) / held if held else 0.0
    words = ", ".join(data.columns[:4]) + (" and others" if len(data.columns) > 4 else "")
    finding = (
        f"If all files followed the tree, a query would read {percent(share)} of the bytes, in "
        f"those of the {plural(number, 'leaf', 'leaves')} that it cannot rule out"
    )
    order = np.lexsort((np.arange(number), -data.bytes * data.reads))
    rows = [
        [
            str(leaf), iec(data.bytes[leaf]), percent(data.reads[leaf]),
            percent(float(data.bytes[leaf] * data.reads[leaf]) / max(share * held, 1e-9)),
            data.sorted_by[leaf] or "arrival",
        ]
        for leaf in order.tolist()
    ]  # fmt: skip
    question = (
        f"What does the tree that cuts by {words} do? Each box is a leaf, as large as its bytes; "
        "the darker it is, the more of the recorded queries read it. The plot names leaves by "
        "their number in the table below."
    )
    heads = ("Leaf", "Bytes", "Queries that read it", "Of all bytes read", "Rows sorted by")
    return finding, question, plots.leaf_map(data), table(heads, rows, (0, 4))


def _sizes(data: FileSizes) -> Section:
    near = int((data.after >= 0.75 * data.target).sum())
    finding = (
        f"{count(near)} of {count(len(data.after))} files reach three quarters of the target size"
    )
    if data.before is not None:
        then = int((data.before >= 0.75 * data.target).sum())
        finding += f"; before, {count(then)} of {count(len(data.before))}"
    edges = plots.size_bins(data)
    after = np.histogram(data.after, edges)[0]
    before = None if data.before is None else np.histogram(data.before, edges)[0]
    rows = [
        [
            f"{iec(edges[number])} - {iec(edges[number + 1])}",
            "-" if before is None else count(before[number]),
            count(after[number]),
        ]
        for number in range(len(edges) - 1)
    ]
    question = f"Are the files too small? Target {iec(data.target)}."
    return finding, question, plots.file_sizes(data), table(("Size", "Before", "Now"), rows)


def _read(prices: Prices | None, size: float) -> str:
    """Return bytes of reading with their money beside them, where there are prices."""
    return beside(iec(size), read_money(prices, size))


def _rewritten(prices: Prices | None, cost: float, rho: float) -> str:
    """Return the cost of a rewrite in bytes of reading, with the money of its real bytes beside it.

    rho: bytes read that a byte rewritten counts as.
    """
    money = "" if prices is None else cost_text(prices, rewriting(cost / rho, rho))
    return beside(iec(cost), money)


def _queries(data: QueryBytes, prices: Prices | None) -> Section:
    shapes = sorted(data.shapes, key=lambda shape: (shape.before - shape.after, shape.text))
    worse = sum(shape.after > shape.before * 1.01 for shape in shapes)
    before, after = sum(s.before for s in shapes), sum(s.after for s in shapes)
    change = f" ({(after - before) / before * 100:+.0f} %)" if before else ""
    losers = "none reads more" if not worse else f"{count(worse)} of {count(len(shapes))} read more"
    finding = (
        f"Recorded queries read {_read(prices, after)} instead of {_read(prices, before)}{change}; "
        f"{losers}"
    )
    listed = QueryBytes(tuple(reversed(shapes)), data.label)
    rows = [
        [
            str(number), shape.text, count(shape.executions), iec(_each(shape, shape.before)),
            iec(_each(shape, shape.after)), _verdict(shape),
        ]
        for number, shape in enumerate(listed.shapes, start=1)
    ]  # fmt: skip
    heads = ("", "Query shape", "Queries", "Bytes a query before", "after", "")
    question = f"Who gains, who loses? After: {data.label}. Numbers in the plot are the table's."
    return finding, question, plots.query_bytes(listed), table(heads, rows, (0, 1, 5))


def _each(shape: ShapeBytes, total: float) -> float:
    return total / max(shape.executions, 1e-9)


def _verdict(shape: ShapeBytes) -> str:
    if shape.after > shape.before * 1.01:
        return "worse"
    return "better" if shape.after < shape.before * 0.99 else "same"


def _payoff(data: Payoff, prices: Prices | None, rho: float) -> Section:
    even = plots.break_even_ms(data)
    start = data.investments[0].at_ms
    cost, measured = (
        sum(getattr(one, name) for one in data.investments) for name in ("cost", "measured")
    )
    if measured >= cost and (even is None or even > data.until_ms):
        finding = f"The rewrites have paid back: {iec(measured)} saved for {iec(cost)}"
    elif even is None:
        finding = "The rewrites have not paid back and, at this rate, will not"
    elif even <= data.until_ms:
        finding = f"The rewrites paid back after {duration((even - start) / 1000)}"
    else:
        finding = f"The rewrites pay back after {duration((even - start) / 1000)} of such queries"
    if harmful := [item for item in data.investments if item.harm]:
        of = f"{count(len(harmful))} of {count(len(data.investments))} plans"
        finding = f"HARM: after {of} the queries cost more than before. {finding}"
    rows = [
        [
            item.plan_id, utc(item.at_ms), _rewritten(prices, item.cost, rho),
            f"HARM: {_read(prices, -item.saving_per_ms * DAY_MS)} more" if item.harm
            else _read(prices, item.saving_per_ms * DAY_MS),
            item.saved,
        ]
        for item in data.investments
    ]  # fmt: skip
    heads = ("Plan", "At", "Cost in bytes of reading", "Saves a day", "Saved so far")
    question = (
        "Does it pay back? A byte rewritten is charged as rho bytes read. Savings are what queries "
        "after a rewrite did not read because of it; before any has run, what the recorded ones "
        "let expect. Opened files count as bytes."
    )
    return finding, question, plots.payoff(data), table(heads, rows, (0, 1))


def _forecasts(data: Sequence[Forecast]) -> Section:
    inside = sum(item.inside for item in data)
    off = [abs(item.ratio - 1) for item in data if np.isfinite(item.ratio)]
    median = percent(float(np.median(off)), 0) if off else "-"
    finding = (
        f"Predictions were off by {median} at the median; "
        f"{inside} of {len(data)} fell into their interval"
    )
    rows = [
        [
            item.label, _amount(item, item.predicted),
            f"{_amount(item, item.low)} - {_amount(item, item.high)}", _amount(item, item.actual),
            f"{(item.ratio - 1) * 100:+.0f} %" if np.isfinite(item.ratio) else "-",
            "" if item.inside else "outside",
        ]
        for item in data
    ]  # fmt: skip
    heads = ("What", "Predicted", "80 % interval", "Actual", "Off by", "")
    question = "Can I believe the next plan?"
    return finding, question, plots.forecasts(data), table(heads, rows, (0, 5))


def _amount(item: Forecast, value: float) -> str:
    return {"bytes": iec, "count": count, "seconds": duration, "cpu": cpu}[item.unit](value)


def _cut(data: CutCurve, prices: Prices | None, rho: float) -> Section:
    ordered = plots.by_saving_per_cost(data.candidates)
    finding = (
        f"{count(data.chosen)} of {count(data.files)} files could save more than they cost; "
        f"{count(sum(item.files for item in ordered if item.chosen))} are rewritten"
    )
    rows = [
        [
            item.label, count(item.files), _read(prices, max(0.0, item.saving_low)),
            _rewritten(prices, item.cost, rho),
            str(reasons.times_cost(item.saving_low, item.cost)),
            "chosen" if item.chosen else "not done",
        ]
        for item in ordered
    ]  # fmt: skip
    heads = ("Candidate", "Files", "Saves (10th percentile)", "Costs", "", "")
    question = (
        "Why these files, no more? The curve is an ideal layout's net saving over the payback "
        "horizon; the table has the 10th percentile of what each candidate saves, which decides."
    )
    return finding, question, plots.cut_curve(data), table(heads, rows, (0, 5))


def _refused(data: Sequence[Line]) -> Section:
    rows = [[line.what, line.why] for line in data]
    finding = f"{plural(len(rows), 'candidate')} considered, not done"
    question = (
        "What was refused, and why? The text of the plan says the same. Candidates that differ "
        "only in their partition share a line."
    )
    return finding, question, "", table(("What", "Why"), rows, (0, 1))
