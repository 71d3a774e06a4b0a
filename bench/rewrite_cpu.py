"""CPU seconds of rewrites: what they take in a user's session, and the constants fitted to it.

    python -m bench.rewrite_cpu [--seed N] [--kinds a,b] [--log FILE] [--fit]

Each table of `bench.tables` is planned and rewritten, with nothing before it in its JVM but the
tables named before it. A line for each rewrite goes to the log; what the log holds is not measured
again. `--fit` fits `reconciler.queries.rewrite_cost.BY_ROWS` to the log, says how far off each kind
is if the fit does not see it, and writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from bench.results import logged, write_section
from bench.tables.__main__ import start
from bench.tables.drawn import NOW, Drawn
from bench.tables.kinds import KINDS
from bench.tables.play import Place, create, imported, step_of
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import run_step
from reconciler.plan.ledger import samples_of
from reconciler.queries.rewrite_cost import BY_ROWS, ByRows, Rows, ThroughputSample
from reconciler.spark.session import session
from reconciler.state.state import StateStore
from reconciler.table.filetable import Float64

LOG = Path("build/bench-rewrite-cpu.jsonl")

PRIOR = 0.15
"""Weight of a constant's present value in a fit, beside a weight of 1 for each table."""

STEPS = 40


@dataclass(frozen=True)
class Measured:
    """The rewrites of one table. fresh: nothing ran in their JVM before."""

    kind: str
    seed: int
    fresh: bool
    samples: tuple[ThroughputSample, ...]

    @property
    def cpu(self) -> float:
        return sum(one.cpu_seconds for one in self.samples)

    def modelled(self, model: ByRows) -> float:
        return sum(
            model.cpu_seconds(one.rows, one.files) for one in self.samples if one.rows is not None
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rewrite_cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="names, separated by commas")
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if options.fit:
        print(report(known(options.log)))
        return 0
    done = {(one.kind, one.seed) for one in known(options.log)}
    names = options.kinds.split(",") if options.kinds else list(KINDS)
    drawn = [KINDS[name](options.seed) for name in names if (name, options.seed) not in done]
    drawn = [one for one in drawn if not one.changes and one.budget is None]
    if drawn:
        with tempfile.TemporaryDirectory(prefix="bench-cpu-") as directory:
            _measure(Path(directory), drawn, options.log)
    return 0


def _measure(root: Path, tables: Sequence[Drawn], log: Path) -> None:
    place, fresh = start(root), True
    try:
        for drawn in tables:
            found = Measured(drawn.kind, drawn.seed, fresh, rewritten(place, drawn))
            fresh = fresh and not found.samples
            with log.open("a") as out:
                out.write(json.dumps(asdict(found)) + "\n")
            print(f"{drawn.kind} {drawn.seed}: {found.cpu:.2f} CPU s", flush=True)
    finally:
        session.stop(place.spark)


def rewritten(place: Place, drawn: Drawn) -> tuple[ThroughputSample, ...]:
    """Plan a table and carry the plan out; return what its rewrites took, as its ledger has it."""
    create(place, drawn, drawn.name)
    store = StateStore(place.root / f"state-{drawn.name}")
    imported(place, drawn.name, drawn.recorded, store, "recorded")
    actor = LocalActor(store, place.root / "cache", spark=place.spark)
    step = step_of(place, drawn.name, lambda: NOW.replace(tzinfo=dt.UTC), None)
    run_step(step, actor, Approvals(everything=True), lambda event: None, lambda: False)
    return tuple(one for one in samples_of(store.ledger()) if one.rows is not None)


def known(log: Path) -> list[Measured]:
    lines = logged(log)
    for line in lines:
        samples = line.pop("samples")
        line["samples"] = tuple(
            ThroughputSample(**{**one, "rows": Rows(**one["rows"])}) for one in samples
        )
    return [Measured(**line) for line in lines]


def fitted(tables: Sequence[Measured], start: ByRows) -> ByRows:
    """Return the constants with the least squared errors of logarithms, by Gauss and Newton's
    method on their logarithms."""
    names = [field.name for field in fields(ByRows)]
    first = np.log([getattr(start, name) for name in names])
    found = np.log([one.cpu for one in tables])

    def model_of(logs: Float64) -> ByRows:
        return ByRows(**dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def errors(logs: Float64) -> Float64:
        model = model_of(logs)
        off = np.log([one.modelled(model) for one in tables]) - found
        return np.concatenate((off, np.sqrt(PRIOR) * (logs - first)))

    at = first.copy()
    for _ in range(STEPS):
        now = errors(at)
        slope = np.stack([(errors(at + step) - now) / 1e-5 for step in 1e-5 * np.eye(len(at))])
        at -= 0.5 * np.linalg.lstsq(slope.T, now, rcond=None)[0]
    return model_of(at)


def report(measured: Sequence[Measured]) -> str:
    """Write the section: the present constants, a fit that has not seen a kind, and what was
    found."""
    tables = [one for one in measured if one.samples and one.samples[0].kind == "sort"]
    kinds = sorted({one.kind for one in tables})
    without = {
        kind: fitted([one for one in tables if one.kind != kind], BY_ROWS["sort"]) for kind in kinds
    }
    rows = [["kind, seed", "rows", "columns", "files, actions", "in a fresh JVM", "model",
             "kind left out of the fit", "found, CPU s"]]  # fmt: skip
    off: dict[str, list[float]] = {"model": [], "left out": []}
    for one in tables:
        counted = [sample.rows for sample in one.samples if sample.rows is not None]
        modelled, other = one.modelled(BY_ROWS["sort"]), one.modelled(without[one.kind])
        off["model"].append(abs(modelled / one.cpu - 1.0))
        off["left out"].append(abs(other / one.cpu - 1.0))
        rows.append([
            f"{one.kind} {one.seed}", f"{sum(r.count for r in counted):,.0f}",
            str(counted[0].columns), f"{sum(s.files for s in one.samples)}, {len(one.samples)}",
            "yes" if one.fresh else "no", f"{modelled:.2f}", f"{other:.2f}", f"{one.cpu:.2f}",
        ])  # fmt: skip
    best = fitted(tables, BY_ROWS["sort"])
    notes = ". ".join(
        f"Error of the {name}: median {np.median(errors):.1%}, 90th percentile "
        f"{np.quantile(errors, 0.9):.1%}, worst {max(errors):.1%}"
        for name, errors in (("constants of today", off["model"]), ("fit", off["left out"]))
    )
    values = ", ".join(f"{name} {value:.3g}" for name, value in asdict(best).items())
    notes += f". Fitted to all: {values}."
    return write_section("CPU by rows", "python -m bench.rewrite_cpu --fit", rows, notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
