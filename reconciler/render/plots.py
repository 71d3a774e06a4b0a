"""Draws the report's plots, each as one inline SVG: data in, text out, no state.

Colour is never the only signal: before and after also differ by place, marker or line. Text remains
text, so that the plots can be scaled, searched and copied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from reconciler.errors import UserError
from reconciler.format import iec
from reconciler.render.report_model import (
    CutCurve,
    FileSizes,
    Forecast,
    JudgedRewrite,
    KeyFiles,
    LeafMap,
    Payoff,
    QueryBytes,
    Spans,
)
from reconciler.table.times import HOUR_MS

if TYPE_CHECKING:
    from reconciler.replay.result import Replayed

BEFORE, AFTER, QUERIED = "#b3541e", "#1f5f8b", "#8a8a8a"
MOST_RANGES, MOST_FILES = 60, 400
"""Queried ranges and files that one figure draws; of more it draws every n-th."""
NEAR = 0.06
"""Points that lie nearer each other share a label, as a share of the greatest x and y."""
STEPS = 200
"""Points of a curve over time."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "layoutctl",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def _figure(width: float = 8.0, height: float = 3.0, rows: int = 1) -> Iterator[tuple[Any, Any]]:
    """Provide a figure with `rows` axes below one another, never shared with a user's own
    matplotlib."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "the HTML report needs matplotlib, which is not installed",
            details=("Markdown reports and every other verb work without it.",),
            do="pip install 'table-layout-reconciler[report]'",
        ) from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.subplots(rows, 1, sharex=rows > 1, squeeze=False)[:, 0]


def _svg(figure: Any, description: str) -> str:
    """Return the figure as an <svg> element with a description for screen readers."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    body = text[text.index("<svg") :]
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def key_files(data: KeyFiles) -> str:
    """Draw a bar per file from its smallest to its largest key; before above after."""
    layouts = [("now", data.after, AFTER)]
    if data.before is not None:
        layouts = [("before", data.before, BEFORE), ("after", data.after, AFTER)]
    with _figure(height=1.2 + 1.5 * len(layouts), rows=len(layouts)) as (figure, axes):
        for ax, (name, spans, colour) in zip(axes, layouts, strict=True):
            _shade(ax, data.queried)
            _bars(ax, spans, colour)
            ax.set_ylabel(f"{name}: {len(spans)} files")
            ax.set_yticks([])
            ax.set_xlim(-0.01, 1.01)
        _key_axis(axes[-1], data)
        return _svg(figure, f"files over {data.column}")


def _shade(ax: Any, queried: Spans) -> None:
    """Draw queried ranges as vertical bands; a point query is a thin line."""
    step = max(1, len(queried) // MOST_RANGES)
    for low, high in zip(queried.low[::step], queried.high[::step], strict=True):
        ax.axvspan(low, max(high, low + 0.002), color=QUERIED, alpha=0.25, linewidth=0)


def _bars(ax: Any, spans: Spans, colour: str) -> None:
    """Draw files in order of their smallest key, thinned evenly if there are very many."""
    order = np.lexsort((spans.high, spans.low))
    order = order[:: max(1, len(order) // MOST_FILES)]
    low, high = spans.low[order], spans.high[order]
    height = np.arange(len(order))
    ax.hlines(height, low, np.maximum(high, low + 0.002), color=colour, linewidth=1.6)


def _key_axis(ax: Any, data: KeyFiles) -> None:
    if data.ticks:
        ax.set_xticks([position for position, _ in data.ticks])
        ax.set_xticklabels([text for _, text in data.ticks])
        ax.set_xlabel(data.column)
        return
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    ax.set_xticklabels(["smallest", "25 %", "50 %", "75 %", "largest"])
    ax.set_xlabel(f"{data.column}, position within its range (grey: queried)")


def size_bins(data: FileSizes) -> np.ndarray[Any, Any]:
    """Return edges in bytes, a factor of two apart, that cover every file and the target."""
    every = [data.after] if data.before is None else [data.after, data.before]
    smallest = min([int(sizes.min()) for sizes in every if len(sizes)] + [data.target])
    largest = max([int(sizes.max()) for sizes in every if len(sizes)] + [data.target])
    first, last = np.floor(np.log2(max(1, smallest))), np.ceil(np.log2(max(2, largest + 1)))
    return np.exp2(np.arange(first, last + 1))


def file_sizes(data: FileSizes) -> str:
    edges = size_bins(data)
    place = np.arange(len(edges) - 1)
    with _figure(height=2.6) as (figure, axes):
        ax = axes[0]
        after = np.histogram(data.after, edges)[0]
        if data.before is None:
            ax.bar(place, after, 0.8, color=AFTER, label="now")
        else:
            before = np.histogram(data.before, edges)[0]
            ax.bar(place - 0.2, before, 0.4, color=BEFORE, hatch="//", label="before")
            ax.bar(place + 0.2, after, 0.4, color=AFTER, label="after")
        target = np.interp(np.log2(data.target), np.log2(edges), np.arange(len(edges))) - 0.5
        ax.axvline(target, color="black", linestyle="--", linewidth=1, label="target")
        ax.set_xticks(np.arange(len(edges)) - 0.5)
        ax.set_xticklabels([iec(edge) for edge in edges], rotation=30, ha="right")
        ax.set_ylabel("files")
        ax.legend(frameon=False)
        return _svg(figure, "file sizes")


def query_bytes(data: QueryBytes) -> str:
    """Draw bytes per query before against after; below the diagonal a shape gains."""
    before = np.array([shape.before / max(shape.executions, 1e-9) for shape in data.shapes])
    after = np.array([shape.after / max(shape.executions, 1e-9) for shape in data.shapes])
    weight = np.array([shape.executions for shape in data.shapes])
    worse = after > before * 1.01
    low = max(1.0, 0.5 * min(before.min(), after.min()))
    high = 2.0 * max(before.max(), after.max(), 2.0)
    with _figure(width=5.5, height=4.2) as (figure, axes):
        ax = axes[0]
        ax.plot([low, high], [low, high], color="black", linewidth=1, linestyle="--")
        area = 25 + 120 * weight / weight.max()
        for mask, marker, colour, name in (
            (~worse, "o", AFTER, "reads less or the same"),
            (worse, "X", BEFORE, "reads more"),
        ):
            if mask.any():
                ax.scatter(
                    np.maximum(before[mask], low), np.maximum(after[mask], low), s=area[mask],
                    marker=marker, color=colour, alpha=0.8, label=name,
                )  # fmt: skip
        for number, (x, y) in enumerate(zip(before, after, strict=True), start=1):
            ax.annotate(str(number), (max(x, low), max(y, low)), xytext=(5, 4),
                        textcoords="offset points", fontsize=7)  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("log")
        _byte_ticks(ax.xaxis, low, high)
        _byte_ticks(ax.yaxis, low, high)
        ax.set_xlabel("bytes a query, before")
        ax.set_ylabel("after")
        ax.legend(frameon=False, loc="upper left")
        return _svg(figure, "bytes per query before against after")


def reading_and_rewriting(
    front: Sequence[tuple[float, float]], layouts: Sequence[tuple[str, float, float]]
) -> str:
    """Draw the cost of reading over the bytes rewritten. front: (rewritten, reading) of what no
    candidate beats in both; layouts: (name, rewritten, reading)."""
    with _figure(width=6.0, height=3.6) as (figure, axes):
        ax, ordered = axes[0], sorted(front)
        ax.step([x for x, _ in ordered], [y for _, y in ordered], where="post", color=QUERIED,
                marker=".", label="no candidate beats it in both")  # fmt: skip
        for name, x, y in layouts:
            marker, colour = ("s", BEFORE) if name == "today" else ("o", AFTER)
            ax.scatter([x], [y], s=40, marker=marker, color=colour, zorder=3)
        for text, x, y in labelled_together(layouts):
            ax.annotate(text, (x, y), xytext=(-6, 6), textcoords="offset points", fontsize=7,
                        horizontalalignment="right" if x > 0 else "left")  # fmt: skip
        ax.set_xlabel("bytes rewritten over the horizon")
        ax.set_ylabel("cost of reading, bytes")
        ax.set_ylim(bottom=0)
        _byte_steps(ax.xaxis, max(x for _, x, _ in layouts))
        _byte_steps(ax.yaxis, max(y for _, _, y in layouts))
        ax.margins(x=0.12)
        ax.legend(frameon=False, loc="lower left", fontsize=8)
        return _svg(figure, "cost of reading against bytes rewritten")


def labelled_together(
    points: Sequence[tuple[str, float, float]],
) -> list[tuple[str, float, float]]:
    """Return one label for points that lie so near each other that theirs would overlap."""
    wide = max(1e-9, *(x for _, x, _ in points))
    high = max(1e-9, *(y for _, _, y in points))
    found: list[tuple[str, float, float]] = []
    for name, x, y in points:
        for place, (text, left, bottom) in enumerate(found):
            if abs(x - left) <= NEAR * wide and abs(y - bottom) <= NEAR * high:
                found[place] = (f"{text}, {name}", left, bottom)
                break
        else:
            found.append((name, x, y))
    return found


def _byte_steps(axis: Any, high: float) -> None:
    """Set up to seven ticks from 0 on, at multiples of a power of two."""
    step = 2.0 ** np.ceil(np.log2(max(high, 6.0) / 6.0))
    axis.set_major_locator(_fixed(np.arange(0.0, 1.1 * high + step / 2, step)))
    axis.set_major_formatter(lambda value, _: iec(value).replace(".0 ", " "))


def _byte_ticks(axis: Any, low: float, high: float) -> None:
    """Set ticks at powers of 1024 or of 4, whichever are few enough to read."""
    for factor in (2.0, 4.0, 16.0, 64.0, 1024.0):
        exponents = np.arange(
            np.ceil(np.log(low) / np.log(factor)), np.floor(np.log(high) / np.log(factor)) + 1
        )
        if len(exponents) <= 7:
            break
    ticks = factor**exponents
    axis.set_major_locator(_fixed(ticks))
    axis.set_minor_locator(_fixed([]))
    axis.set_major_formatter(lambda value, _: iec(value).replace(".0 ", " "))


def _fixed(ticks: Any) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)


def payoff_curves(data: Payoff) -> tuple[Any, Any, Any]:
    """Return (hours since the first rewrite, cost so far, saved so far), both in bytes of reading.

    The axis ends at `until_ms` or, if that is later, at one and a half times break-even.
    """
    start = data.investments[0].at_ms
    end = max(data.until_ms, start + HOUR_MS)
    even = break_even_ms(data)
    if even is not None:
        end = max(end, int(start + 1.5 * (even - start)))
    times = np.linspace(start, end, STEPS)
    at = np.array([item.at_ms for item in data.investments], dtype=np.float64)
    cost = np.array([item.cost for item in data.investments])
    rate = np.array([item.saving_per_ms for item in data.investments])
    since = np.maximum(0.0, times[:, None] - at[None, :])
    spent = (since > 0) @ cost
    spent[0] = data.investments[0].cost
    return (times - start) / HOUR_MS, spent, since @ rate


def break_even_ms(data: Payoff) -> float | None:
    """Return when the savings of all investments first equal their cost; None if they never
    will."""
    investments = data.investments
    for number in range(1, len(investments) + 1):
        known = investments[:number]
        rate = sum(item.saving_per_ms for item in known)
        if rate <= 0:
            continue
        needed = sum(item.cost for item in known)
        needed += sum(item.saving_per_ms * item.at_ms for item in known)
        moment = needed / rate
        later = investments[number].at_ms if number < len(investments) else float("inf")
        if known[-1].at_ms <= moment < later:
            return moment
    return None


def payoff(data: Payoff) -> str:
    hours, cost, saved = payoff_curves(data)
    now = (data.until_ms - data.investments[0].at_ms) / HOUR_MS
    with _figure(height=2.8) as (figure, axes):
        ax = axes[0]
        ax.plot(hours, cost, color=BEFORE, drawstyle="steps-post", label="spent on rewriting")
        past = hours <= max(now, hours[1])
        ax.plot(hours[past], saved[past], color=AFTER, label="saved so far")
        ax.plot(hours[~past], saved[~past], color=AFTER, linestyle=":", label="saved, expected")
        even = break_even_ms(data)
        if even is not None:
            at = (even - data.investments[0].at_ms) / HOUR_MS
            ax.axvline(at, color="black", linestyle="--", linewidth=1)
            ax.annotate("break-even", (at, 0), xytext=(4, 4), textcoords="offset points")
        ax.set_xlabel("hours since the first rewrite")
        ax.set_ylabel("bytes of reading")
        ax.yaxis.set_major_formatter(lambda value, _: iec(value))
        ax.set_ylim(bottom=min(0.0, float(saved.min())))
        ax.legend(frameon=False, loc="upper left")
        return _svg(figure, "cost against saving over time")


def forecasts(data: Sequence[Forecast]) -> str:
    """Draw actual / predicted per forecast, with the 80 % interval as a bar; 1 is a perfect
    forecast."""
    shown = [item for item in data if item.predicted > 0]
    with _figure(height=0.9 + 0.32 * len(shown)) as (figure, axes):
        ax = axes[0]
        for row, item in enumerate(shown):
            low, high = item.low / item.predicted, item.high / item.predicted
            ax.hlines(row, low, high, color=QUERIED, linewidth=6, alpha=0.5)
            colour, marker = (AFTER, "o") if item.inside else (BEFORE, "X")
            ax.plot([item.ratio], [row], color=colour, marker=marker, linestyle="")
        ax.axvline(1.0, color="black", linestyle="--", linewidth=1)
        ax.set_yticks(range(len(shown)))
        ax.set_yticklabels([item.label for item in shown])
        ax.invert_yaxis()
        ax.set_xlabel("actual / predicted (bar: 80 % interval; o inside, X outside)")
        return _svg(figure, "predicted against actual")


def cut_curve(data: CutCurve) -> str:
    """Draw the net saving over files, best first, with the cut at its maximum (WAIR, Algorithm
    2)."""
    files = np.arange(len(data.net) + 1)
    net = np.concatenate([[0.0], data.net])
    with _figure(height=2.8) as (figure, axes):
        ax = axes[0]
        chosen = files <= data.chosen
        ax.plot(files[chosen], net[chosen], color=AFTER, linewidth=2, label="worth it")
        ax.plot(files[data.chosen :], net[data.chosen :], color=BEFORE, linestyle="--",
                label="costs more than it saves")  # fmt: skip
        ax.plot([data.chosen], [net[data.chosen]], color="black", marker="o")
        ax.axhline(0.0, color=QUERIED, linewidth=0.8)
        ax.set_xlabel("files rewritten, in order of saving per cost")
        ax.set_ylabel("net saving at most")
        ax.yaxis.set_major_formatter(_signed_bytes)
        ax.legend(frameon=False)
        return _svg(figure, "the cut curve")


MOST_LEAVES = 2000
"""Leaves that the drawing of a tree has, the largest."""
MOST_LABELS = 24
"""Leaves that the drawing of a tree names: those of which most is read."""


def leaf_map(data: LeafMap) -> str:
    """Draw leaves as large as their bytes, the darker the more queries read them; those of which
    most is read also say so."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    drawn_leaves = np.argsort(-data.bytes, kind="stable")[:MOST_LEAVES]
    left, bottom, width, height = data.boxes[drawn_leaves].T
    corners = np.stack([
        np.stack([left, bottom]), np.stack([left + width, bottom]),
        np.stack([left + width, bottom + height]), np.stack([left, bottom + height]),
    ])  # fmt: skip
    with _figure(width=7.5, height=4.6) as (figure, axes):
        ax = axes[0]
        drawn = PolyCollection(list(corners.transpose(2, 0, 1)), cmap="Blues", edgecolors=QUERIED,
                               linewidths=0.6)  # fmt: skip
        most = max(float(data.reads.max(initial=0.0)), 1e-9)
        drawn.set_array(data.reads[drawn_leaves])
        drawn.set_clim(0.0, most)
        ax.add_collection(drawn)
        for leaf in np.argsort(-data.bytes * data.reads, kind="stable")[:MOST_LABELS].tolist():
            if data.boxes[leaf, 2] >= 0.06 and data.boxes[leaf, 3] >= 0.07:
                _name_leaf(ax, data, leaf)
        ax.set_axis_off()
        steps = np.linspace(0.0, most, 5)
        shades = [tuple(one) for one in drawn.to_rgba(steps).tolist()]
        patches = [Patch(facecolor=shade, edgecolor=QUERIED) for shade in shades]
        ax.legend(
            patches, [f"{100 * step:.0f} %" for step in steps], title="read by, of the queries",
            loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=5, frameon=False,
        )  # fmt: skip
        return _svg(figure, "leaves of the tree by their bytes and how often they are read")


def _name_leaf(ax: Any, data: LeafMap, leaf: int) -> None:
    left, bottom, width, height = data.boxes[leaf].tolist()
    dark = data.reads[leaf] > 0.6 * float(data.reads.max())
    ax.text(left + width / 2, bottom + height / 2, f"{leaf}\n{100 * data.reads[leaf]:.0f} %",
            ha="center", va="center", fontsize=7, color="white" if dark else "black")  # fmt: skip


def by_saving_per_cost(data: Sequence[JudgedRewrite]) -> list[JudgedRewrite]:
    return sorted(data, key=lambda item: (-item.saving_low / max(item.cost, 1.0), item.label))


def _signed_bytes(value: float, _position: int) -> str:
    return iec(value) if value >= 0 else "-" + iec(-value)


LINES = ("-", "--", "-.", ":")
"""Styles by which policies differ where colours do not."""
OTHERS = tuple(f"C{number}" for number in (0, 1, 2, 3, 4, 5, 6, 8, 9))
"""Colours of policies that rewrite; C7 is a grey like that of the one that does not."""


def added_costs(found: Replayed) -> str:
    """The costs of policies in a replay as they add up over the batches: reading and rewriting."""
    days = (np.array([found.since_ms, *found.ends_ms]) - found.since_ms) / (24 * HOUR_MS)
    with _figure(width=7.5, height=3.8) as (figure, axes):
        ax, most = axes[0], 0.0
        for number, result in enumerate(found.results):
            total = np.cumsum([0.0, *result.replay.cost])
            most = max(most, float(total[-1]))
            ax.plot(
                days, total, LINES[number % len(LINES)], label=result.name,
                color=QUERIED if number == 0 else OTHERS[(number - 1) % len(OTHERS)],
            )  # fmt: skip
        ax.set_xlabel("days")
        ax.set_ylabel("cost, in bytes of reading")
        _byte_steps(ax.yaxis, most)
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return _svg(figure, "costs of policies as they add up")
