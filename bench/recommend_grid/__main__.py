"""`recommend` against brute force: does it choose the best layout, and say what it will read?

    python -m bench.recommend_grid [--kinds a,b] [--rows 400000] [--seed 1] [--log FILE]

Each kind of table (`kinds`) is created in a catalog and recommended for by the code of `layoutctl
recommend`. Beside it, an exhaustive grid of layouts (`layouts`) is priced on all rows: no
partitions and every useful one, single columns, ordered pairs and triples, Hilbert curves over two
to four columns, sizes of files and row groups. The best of them and the chosen one are written as
files; both are priced by their footers and by one price list (`price`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyiceberg

from bench.recommend_grid.kinds import KINDS, Kind
from bench.recommend_grid.layouts import Laid, Layout, best_of_all
from bench.recommend_grid.price import Found, pieces_of, priced
from bench.results import logged, write_section
from bench.tables.drawn import DAYS, NOW, Drawn
from bench.tables.play import NAMESPACE, create, imported, without_spark
from reconciler.advisor.pto.recommend import recommend
from reconciler.advisor.pto.recommendation import DeclaredLayout
from reconciler.advisor.simulate.layout import Sizes
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.recommend import HORIZON_MS, Options, gathered
from reconciler.state.state import StateStore
from reconciler.table.times import DAY_MS

LOG = Path("build/bench-recommend-grid.jsonl")
SAMPLED = 120_000
OVER = HORIZON_MS / DAY_MS / DAYS
"""Executions over the horizon for each recorded one."""
NOTES = """Chosen / best: cost of reading by the footers of written files and by one price list, of
the chosen layout and of the best one of the exhaustive grid; with the rewrite where the table stays
as it is. Predicted / found: bytes of column chunks that the recorded queries read of the chosen
layout. Goals: at most 1.03 at the median and 1.10 at worst; predictions within 5 %. A ratio below
1 is a layout that the grid does not have: a tree of cuts, or sizes between its own."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recommend_grid")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=LOG)
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    for name in options.kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="bench-grid-") as directory:
            line = compared(KINDS[name](options.rows, options.seed), Path(directory))
        line |= {"seed": options.seed, "rows": options.rows}
        with options.log.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(short(line), flush=True)
    print(report(options.log))
    return 0


def compared(kind: Kind, root: Path) -> dict[str, Any]:
    place = without_spark(root)
    step = -(-len(kind.rows) // kind.files)
    batches = tuple(kind.rows.slice(at, step) for at in range(0, len(kind.rows), step))
    drawn = Drawn(kind.name, 1, batches, kind.log(), (), kind.filtered, whole=True,
                  target=512 << 20)  # fmt: skip
    create(place, drawn, kind.name)
    store = StateStore(root / "state")
    imported(place, kind.name, drawn.recorded, store, "recorded")
    target = Target(place.config, (NAMESPACE, kind.name))
    actor = LocalActor(store, root / "cache", spark=None)
    begun = time.process_time()
    seen = actor.observe(target)
    made = gathered(seen, target, actor, Options(sample_rows=SAMPLED), NOW.replace(tzinfo=dt.UTC))
    answer = recommend(made.given)
    seconds = time.process_time() - begun
    laid = Laid(kind, seen.schema)
    paths = [Path(str(path).removeprefix("file://")) for path in seen.files.path]
    today = priced(pieces_of(paths, kind.filtered), kind.queries)
    best = answer.chosen or next(it for it in answer.others if it.name == "best")
    chosen = layout_of(laid, best)
    found = laid.written(chosen, root / "chosen")
    rivals = best_of_all(laid, root / "rivals")
    rho = made.given.rho
    return {
        "kind": kind.name, "seconds": seconds, "keep": answer.keep, "rho": rho,
        "today": vars_of(today), "best": chosen.text(seen.schema), "found": vars_of(found),
        "predicted": best.recorded.bytes, "low": best.recorded.low, "high": best.recorded.high,
        "today_predicted": answer.today.recorded.bytes, "candidates": answer.candidates,
        "worse": len(best.worse),
        "rivals": [[layout.text(seen.schema), vars_of(one)] for layout, one in rivals],
    }  # fmt: skip


def vars_of(found: Found) -> dict[str, float]:
    return {name: float(getattr(found, name)) for name in Found.__slots__}


def layout_of(laid: Laid, declared: DeclaredLayout) -> Layout:
    assert declared.row_group is not None
    sizes = Sizes(declared.target_bytes, declared.row_group.bytes)
    return Layout(laid.spec_of(declared.spec), declared.ordering, sizes)


def ratio(line: dict[str, Any]) -> float:
    """Return the cost of the answer divided by the least cost that was found."""
    best = line["rivals"][0][1]
    if line["keep"]:
        rewrite = line["rho"] * line["today"]["bytes"]
        now, other = OVER * line["today"]["cost"], OVER * best["cost"] + rewrite
        return float(now / min(now, other))
    return float(line["found"]["cost"] / best["cost"])


def report(log: Path) -> str:
    last = {(line["kind"], line["seed"], line["rows"]): line for line in logged(log)}
    head = ["table", "seed", "rows", "chosen", "best of the grid", "chosen / best",
            "predicted / found", "CPU s"]  # fmt: skip
    rows = [head]
    for line in last.values():
        predicted = line["predicted"] / max(line["found"]["read"], 1.0)
        rows.append([
            line["kind"], str(line["seed"]), f"{line['rows']:,}",
            "as it is" if line["keep"] else line["best"], line["rivals"][0][0],
            f"{ratio(line):.3f}", f"{predicted:.3f}", f"{line['seconds']:.1f}",
        ])  # fmt: skip
    ratios = [ratio(line) for line in last.values()]
    errors = [
        abs(line["predicted"] / max(line["found"]["read"], 1.0) - 1.0) for line in last.values()
    ]
    notes = (
        f"{NOTES} Median {np.median(ratios):.3f}, worst {max(ratios):.3f}; error of the prediction "
        f"{np.median(errors):.1%} at the median, {max(errors):.1%} at worst. pyarrow "
        f"{pa.__version__}, pyiceberg {pyiceberg.__version__}, numpy {np.__version__}."
    )
    return write_section(
        "Recommendations against brute force", "python -m bench.recommend_grid", rows, notes
    )


def short(line: dict[str, Any]) -> str:
    mib = 1 << 20
    out = [
        f"{line['kind']}: chosen/best {ratio(line):.3f}; today {line['today']['cost'] / mib:.0f} "
        f"MiB, {line['today']['bytes'] / mib:.1f} MiB stored; {line['seconds']:.1f} CPU s; "
        f"{line['candidates']} candidates; keep: {line['keep'] or '-'}",
        f"  answer {line['best']}: cost {line['found']['cost'] / mib:.1f}, read "
        f"{line['found']['read'] / mib:.1f} predicted {line['predicted'] / mib:.1f} "
        f"[{line['low'] / mib:.1f}, {line['high'] / mib:.1f}] files {line['found']['files']:.0f} "
        f"groups {line['found']['groups']:.0f}",
    ]
    for text, one in line["rivals"][:4]:
        out.append(
            f"    {text}: cost {one['cost'] / mib:.1f}, read {one['read'] / mib:.1f}, files "
            f"{one['files']:.0f} groups {one['groups']:.0f}"
        )
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
