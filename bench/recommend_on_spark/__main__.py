"""Recommendations against physical rewrites: is the chosen layout best, the prediction true?

    python -m bench.recommend_on_spark [--tables lineitem,store_sales,events] [--scale 0.1]
        [--rewrites 14] [--writer spark|arrow] [--watch]

Each table is recommended for by the code of `layoutctl recommend`. The chosen layout, the next
best, and others spread over the candidates are then written by the executors that carry out plans.
Reading is that of the recorded queries by the footers of the files that Spark wrote: a witness that
shares with the simulation only the rule of pruning. Of the chosen layout, Spark and DuckDB also say
which files they open for some of the queries (`bench.tables.witness`). `any:7` is the table drawn
from seed 7. With `--writer arrow` files are written without Spark (`by_arrow`), which is faster and
follows the rules of its writer; with `--watch` Spark is started all the same, to say which files of
the chosen layout it opens.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.recommend_on_spark.by_arrow import ByArrow
from bench.recommend_on_spark.tables import TABLES
from bench.results import write_section
from bench.tables.__main__ import start, without_spark
from bench.tables.drawn import NOW, Drawn
from bench.tables.play import NAMESPACE, Place, Seen, create, imported, look
from bench.tables.trial import arranged, carry_out, roll_back
from bench.tables.witness import watch
from reconciler.advisor.pto.methods.registry import DEFAULT_METHOD, METHODS
from reconciler.advisor.pto.objective import reading_cost
from reconciler.advisor.pto.partitionings import text_of
from reconciler.advisor.pto.present import present_readings
from reconciler.advisor.pto.recommend import SCREEN_ROWS, THIN_ROWS, RecommendInput, search_space
from reconciler.advisor.pto.recommend import recommend as recommendation_of
from reconciler.advisor.pto.space import Label, Space, best, sampled_enough
from reconciler.advisor.simulate.pool import build_pool
from reconciler.demo.witness import connect
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.recommend import Options, gathered
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec
from reconciler.spark.session import session
from reconciler.state.state import StateStore
from reconciler.table.filetable import Float64

CLOSE = 0.01
"""Relative difference of costs below which their order counts for nothing."""

DRAWS = 400

LOG = Path("build/bench-recommend-on-spark.jsonl")
NOTES = """Predicted and found are the cost of reading over the horizon plus the rewrite, of layouts
that were written by the executors of plans, or by Arrow after the rules of their writer; found from
the footers of the written files. Goals: 14 layouts of three tables, Spearman 0.99, 1 % above the
best, 5 % of error; no worse than the expert's. Close costs lower the correlation: beside it stands
the one of a model whose predictions are off by a normal error of 1 % (median of 400 draws), and the
share of pairs of layouts, of those more than 1 % apart, whose order was predicted. Tables of four
layouts show what is read beside the default and the expert's. Files opened: by up to six of the
recorded queries, on the chosen layout."""


@dataclass(frozen=True)
class Written:
    """A candidate, predicted and written. read: bytes of the recorded queries; cost: of reading
    over the horizon; total: with the rewrite. watched: queries that two engines ran on it."""

    name: str
    what: str
    predicted: dict[str, float]
    found: dict[str, float]
    watched: list[dict[str, Any]]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-rewrites-") as directory:
        by_arrow = options.writer == "arrow"
        alone = by_arrow and not options.watch
        place = without_spark(Path(directory)) if alone else start(Path(directory))
        try:
            for wanted in options.tables.split(","):
                name, _, seed = wanted.partition(":")
                drawn = TABLES[name](options.scale, int(seed or 1))
                line = compared(place, drawn, options.rewrites, options.rows, by_arrow=by_arrow)
                line |= {"scale": options.scale, "table": wanted, "writer": options.writer}
                with options.log.open("a") as out:
                    out.write(json.dumps(line) + "\n")
                print(short(line), flush=True)
        finally:
            if not alone:
                session.stop(place.spark)
    print(report(options.log))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.recommend_on_spark")
    parser.add_argument("--tables", default="lineitem,store_sales,events")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rewrites", type=int, default=14)
    parser.add_argument("--rows", type=int, default=120_000, help="rows of the sample")
    parser.add_argument("--writer", choices=("spark", "arrow"), default="spark")
    parser.add_argument("--watch", action="store_true", help="with arrow: what Spark opens")
    parser.add_argument("--log", type=Path, default=LOG)
    return parser.parse_args(arguments)


def compared(
    place: Place, drawn: Drawn, number: int, rows: int, *, by_arrow: bool
) -> dict[str, Any]:
    create(place, drawn, drawn.name)
    store = StateStore(place.root / f"state-{drawn.name}")
    imported(place, drawn.name, drawn.recorded, store, "recorded")
    target = Target(place.config, (NAMESPACE, drawn.name))
    actor = LocalActor(store, place.root / "cache", spark=None if by_arrow else place.spark)
    started = time.process_time()
    made = gathered(
        actor.observe(target), target, actor, Options(sample_rows=rows), NOW.replace(tzinfo=dt.UTC)
    )
    given = replace(made.given, by_spark="trees are written by bench.recommend_grid")
    answer = recommendation_of(given)
    seconds = time.process_time() - started
    space = _space(given)
    chosen = _label_of(space, DEFAULT_METHOD)
    if by_arrow and not _whole(space, chosen):
        chosen = best([label for label in space.labels if _whole(space, label)])
    writer = None
    if by_arrow:
        writer = ByArrow(place, drawn.name, pa.concat_tables(drawn.batches), place.root / "arrow")
    written = [
        _written(place, drawn, made.given, space, name, label, writer)
        for name, label in _to_write(space, chosen, number, whole=by_arrow)
    ]
    present = look(place, drawn.name)
    today = _read(made.given, present.view)
    return {
        "seconds": seconds,
        "keep": answer.keep,
        "bytes": int(present.observation.files.total_bytes),
        "rows": int(present.observation.files.total_records),
        "today": {**today, "total": today["cost"], "predicted": answer.today.reading},
        "written": [vars(one) for one in written],
        "sampled_rows": chosen.sampled_rows,
    }


def _space(given: RecommendInput) -> Space:
    columns = sorted(given.view.sample.values) if given.view.sample is not None else []
    pool, thin, screen = (
        build_pool(given.view, columns, rows) for rows in (600_000, THIN_ROWS, SCREEN_ROWS)
    )
    assert pool is not None and thin is not None and screen is not None
    space, _ = search_space(given, pool, thin, screen)
    return space


def _label_of(space: Space, method: str) -> Label:
    (label,) = space.label([METHODS[method](space, 0).candidate])
    return label


def _to_write(space: Space, chosen: Label, number: int, *, whole: bool) -> list[tuple[str, Label]]:
    """Return the chosen candidate, the expert's, the default, the two best of the grid, and others
    spread evenly over it by predicted cost, at most two of a partitioning and ordering. whole: only
    those that rewrite the table without partitions."""

    def writable(label: Label) -> bool:
        return not whole or _whole(space, label)

    labels = sampled_enough(sorted(space.labels, key=lambda label: label.total))
    labels = [label for label in labels if writable(label)]
    named = [("chosen", chosen)]
    named += [(name, _label_of(space, name)) for name in ("expert", "default")]
    named = [(name, label) for name, label in named if writable(label)]
    seen = {label.candidate for _, label in named}
    kinds: dict[tuple[int, int], int] = {}
    nearest = [label for label in labels if label.candidate not in seen]
    spread = np.linspace(0, len(nearest) - 1, max(number - len(named) - 2, 1) * 4).astype(int)
    for place in [0, 1, *spread.tolist()]:
        label = nearest[place]
        kind = (label.candidate.spec, label.candidate.ordering)
        if label.candidate in seen or kinds.get(kind, 0) > 1:
            continue
        seen.add(label.candidate)
        kinds[kind] = kinds.get(kind, 0) + 1
        named.append((f"next {len(named) - 2}" if place < 2 else f"rank {place}", label))
        if len(named) == number:
            break
    return named


def _read(given: RecommendInput, view: Any) -> dict[str, float]:
    """Return what the recorded queries read of written files, by their footers."""
    readings = present_readings(view, given.demands)
    cost = float(reading_cost(given.costs, readings, given.demands).sum())
    return {
        "read": float(readings.window.sum()),
        "cost": cost,
        "files": float(len(view.files)),
        "groups": float(len(view.row_groups)),
        "opened": float(readings.opened.sum()),
        "bytes": float(view.files.total_bytes),
    }


def _whole(space: Space, label: Label) -> bool:
    """Whether the layout has no partitions and rewrites every file, which is what arrow writes."""
    spec = space.partitionings[label.candidate.spec].spec
    return spec.unpartitioned and label.first_rewrite_bytes >= 0.999 * space.live_bytes


def _written(
    place: Place,
    drawn: Drawn,
    given: RecommendInput,
    space: Space,
    name: str,
    label: Label,
    by_arrow: ByArrow | None,
) -> Written:
    before = look(place, drawn.name)
    candidate, schema = label.candidate, before.observation.schema
    watched: list[dict[str, Any]] = []
    if by_arrow is not None:
        table = by_arrow.write(schema, space.ordering(candidate.ordering), candidate.sizes)
    else:
        actions = _actions(before, given, space, label)
        carry_out(place, drawn.name, before, actions, f"p-{time.time_ns():020x}")
        table = drawn.name
    after = look(place, table)
    if name == "chosen" and place.spark is not None:
        watched = [asdict(one) for one in watch(place, drawn, connect(), table)]
    if by_arrow is None:
        roll_back(place, drawn.name, before)
    assert after.observation.files.total_records == before.observation.files.total_records
    found = _read(given, after.view)
    found["total"] = found["cost"] + label.rewrite
    order = space.ordering(candidate.ordering).text(schema) or "unsorted"
    spec = text_of(space.partitionings[candidate.spec].spec, schema)
    sizes = candidate.sizes
    what = f"{spec} | {order} | {sizes.target_bytes >> 10} KiB / {sizes.row_group_bytes >> 10} KiB"
    predicted = {
        "read": float(label.window.sum()), "cost": label.reading, "total": label.total,
        "files": label.files, "groups": label.row_groups, "opened": label.opened,
        "bytes": label.bytes_written, "sampled": label.sampled_rows,
    }  # fmt: skip
    return Written(name, what, predicted, found, watched)


def _actions(before: Seen, given: RecommendInput, space: Space, label: Label) -> list[Action]:
    files, candidate = before.observation.files, label.candidate
    chosen = space.partitionings[candidate.spec]
    ordering = space.ordering(candidate.ordering)
    sizes = candidate.sizes.target_bytes, candidate.sizes.row_group_bytes
    if chosen.present:
        every = np.arange(len(files), dtype=np.int64)
        return [*arranged(before, every, ordering, *sizes)]
    metadata = before.observation.metadata
    fields = chosen.spec.own_fields
    known = [n for n, own in metadata.specs.items() if set(own) == {f.term for f in fields}]
    number = max(known) if known else max(metadata.specs) + 1
    old = metadata.default_spec_id
    added = [] if known else [AddSpec(number, fields, old)]
    inputs = tuple(sorted(map(str, files.path)))
    moved = Migrate(
        inputs=inputs, spec_id=old, partition=files.partitions[int(files.partition[0])][1],
        output_spec_id=number, fields=fields, ordering=ordering, target_bytes=sizes[0],
        row_group_bytes=sizes[1],
    )  # fmt: skip
    return [*added, moved]


def statistics(line: dict[str, Any]) -> dict[str, float]:
    """Return rank correlation, regret, and prediction over fact of the chosen layout."""
    from scipy.stats import spearmanr

    written = line["written"]
    predicted = [one["predicted"]["total"] for one in written]
    found = [one["found"]["total"] for one in written]
    chosen = written[0]
    kept = line["today"]["cost"] if line["keep"] else chosen["found"]["total"]
    everything = [*found, line["today"]["cost"]]
    by = {one["name"]: one["found"] for one in written}
    errors = [one["predicted"]["read"] / max(one["found"]["read"], 1.0) - 1.0 for one in written]
    return {
        "layouts": float(len(written)),
        "spearman": float(spearmanr(predicted, found).statistic),
        "spearman_of_1_percent": _spearman_of_errors(np.array(found)),
        "pairs_in_order": _pairs_in_order(np.array(predicted), np.array(found)),
        "regret": kept / min(everything) - 1.0,
        "read_error": errors[0],
        "median_error": float(np.median(np.abs(errors))),
        "worst_error": float(np.max(np.abs(errors))),
        "of_default": _of(chosen, by.get("default")),
        "of_expert": _of(chosen, by.get("expert")),
        "of_today": chosen["found"]["read"] / max(line["today"]["read"], 1.0),
    }


def _spearman_of_errors(found: Float64) -> float:
    """Return the rank correlation, at the median of draws, of costs that are off by a normal error
    of CLOSE: what a model so good would show on layouts whose costs are this close."""
    from scipy.stats import spearmanr

    drawn = np.random.default_rng(1).normal(0.0, CLOSE, (DRAWS, len(found)))
    each = [float(spearmanr(found * np.exp(errors), found).statistic) for errors in drawn]
    return float(np.median(each))


def _pairs_in_order(predicted: Float64, found: Float64) -> float:
    """Return the share of the pairs of layouts that are more than CLOSE apart in found cost whose
    order was predicted."""
    one, other = np.triu_indices(len(found), 1)
    apart = np.abs(np.log(found[one] / found[other])) > CLOSE
    right = (predicted[one] - predicted[other]) * (found[one] - found[other]) > 0.0
    return float(right[apart].mean()) if apart.any() else 1.0


def report(log: Path) -> str:
    """Write the last comparison of each table to bench/RESULTS.md; return the section."""
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    head = ["table", "scale", "written by", "rows", "layouts written", "Spearman",
            "Spearman of errors of 1 %", "pairs in order", "above the best written",
            "read of chosen, predicted / found", "median error", "chosen / default, read",
            "chosen / expert, read", "files opened of the chosen: planned, Spark, DuckDB",
            "queries for which they agree"]  # fmt: skip
    rows = [head]
    last = {(it["table"], it["scale"], it["writer"]): it for it in lines}
    for line in last.values():
        known = statistics(line)
        rows.append([
            line["table"], f"{line['scale']:g}", line["writer"], f"{line['rows']:,}",
            f"{known['layouts']:.0f}",
            f"{known['spearman']:.3f}", f"{known['spearman_of_1_percent']:.3f}",
            f"{known['pairs_in_order']:.1%}", f"{known['regret']:.1%}",
            f"{1 + known['read_error']:.2f}",
            f"{known['median_error']:.1%}", _ratio(known["of_default"]),
            _ratio(known["of_expert"]), *_opened(line["written"][0].get("watched", [])),
        ])  # fmt: skip
    return write_section(
        "Recommendations against rewrites", "python -m bench.recommend_on_spark", rows, NOTES
    )


def _of(chosen: dict[str, Any], other: dict[str, float] | None) -> float:
    """Return what the chosen layout reads, divided by what the other does; NaN if that was not
    written, as layouts with partitions are not by Arrow."""
    return chosen["found"]["read"] / max(other["read"], 1.0) if other else float("nan")


def _ratio(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


def _opened(watched: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the files that some queries open in all, by the plan and by each engine, and for how
    many queries each engine opens what pruning by what it knows leaves."""
    if not watched:
        return "-", "-"
    files = [sum(one[who] for one in watched) for who in ("planned", "spark", "duckdb")]
    agree = sum(
        one["spark"] == one["planned"]
        and one["duckdb"] == one["by_duckdb"]
        and one["spark_rows"] == one["duckdb_rows"]
        for one in watched
    )
    return ", ".join(map(str, files)), f"{agree} of {len(watched)}"


def short(line: dict[str, Any]) -> str:
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in statistics(line).items())
    out = [
        f"{line['table']} x {line['scale']}: {line['rows']:,} rows, {line['bytes'] >> 20} MiB; "
        f"{numbers}"
    ]
    out.append(f"  keep: {line['keep'] or '-'}; {line['seconds']:.1f} CPU s; "
               f"{line['sampled_rows']:.0f} sampled rows; today "
               f"{line['today']['cost'] / 2**20:.1f} MiB")  # fmt: skip
    for one in sorted(line["written"], key=lambda item: item["found"]["total"]):
        p, f = one["predicted"], one["found"]
        out.append(
            f"  {one['name']:9} {one['what']:70} total {p['total'] / 2**20:8.1f} -> "
            f"{f['total'] / 2**20:8.1f} read {p['read'] / max(f['read'], 1):5.2f} files "
            f"{p['files']:.0f}/{f['files']:.0f} groups {p['groups']:.0f}/{f['groups']:.0f} bytes "
            f"{p['bytes'] / f['bytes']:.2f} r {p['sampled']:.0f}"
        )
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
