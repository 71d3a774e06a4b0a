"""The protocol of the paper on WAIR (Liu et al., section 6.2.1) under many policies and seeds.

    python -m bench.wair [--log FILE] [--seeds 1 2 3 4 5] [--policies NAME...] [PART...]

Parts: `protocol`, `deviations` (what each difference from the paper changes), `loads` (queries
like those of DSB and TPC-DS, and logs of which 0.1 % is asked for). Costs are in bytes of reading
with the given rho. The log keeps what every run took, batch by batch; runs that are in it are not
repeated, and a run of a load that was ended goes on after its last batch.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.replay.lineitem import COMMIT, SCHEMA, SHIP
from bench.replay.loads import Load, dsb_like, logs_like, tpcds_like
from bench.replay.protocol import PERIOD, POOL, Protocol, in_parts, whole_batches
from bench.replay.table import SimulatedTable, empty_table
from bench.results import logged, write_section
from reconciler.advisor.advice import EARLY_SHARE, Settings
from reconciler.plan.actions.base import Action
from reconciler.queries.forecasts.decay import decayed_forecast
from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.shape import Workload
from reconciler.replay.policies.depth_driven import depth_driven
from reconciler.replay.policies.fixed import (
    rebuild_each,
    rebuild_tree,
    sort_everything,
    sort_new_data,
)
from reconciler.replay.policies.literal_wair import literal_wair
from reconciler.replay.policies.oracle import sorted_for_free
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Policy, Replay, Running, Step, replay

EARLY = 4
"""Decisions of a batch where a new mix of queries is decided on as soon as it is imported."""

SORTED = "sorted after each batch"

DATES = (SHIP, COMMIT)
Steps = Sequence[Step[SimulatedTable]]


@dataclass(frozen=True)
class Trial:
    """How a policy is played. settings: of the load, changed. parts: decisions of a batch."""

    policy: Callable[[Protocol], Policy[SimulatedTable]]
    settings: Callable[[Settings], Settings] = lambda settings: settings
    parts: int = 1


def unattended(settings: Settings) -> Settings:
    return replace(settings, early_share=EARLY_SHARE)


def in_pool(policy: Policy[SimulatedTable], batch_ms: int) -> Policy[SimulatedTable]:
    """Reclustering starts with the third period."""

    def guarded(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        if settings.now_ms < POOL * PERIOD * batch_ms:
            return ()
        return policy(table, work, settings)

    return guarded


def by_period(policies: Mapping[int, Policy[SimulatedTable]], batch_ms: int) -> Policy[Any]:
    """Each period has its own policy: baselines that sort by one key are given the best one."""

    def chosen(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        return policies[settings.now_ms // batch_ms // PERIOD](table, work, settings)

    return chosen


def keyed(made: Callable[[int], Policy[Any]]) -> Callable[[Protocol], Policy[SimulatedTable]]:
    """The policy by ship date, and in the fifth period by commit date."""
    ship, commit = made(SHIP), made(COMMIT)
    policies = {period: commit if period == 4 else ship for period in range(6)}
    return lambda protocol: by_period(policies, protocol.batch_ms)


def at_begin_of_periods(policy: Policy[Any]) -> Callable[[Protocol], Policy[SimulatedTable]]:
    def made(protocol: Protocol) -> Policy[SimulatedTable]:
        def guarded(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
            first = settings.now_ms // protocol.batch_ms % PERIOD == 0
            return policy(table, work, settings) if first else ()

        return guarded

    return made


def _ours(settings: Callable[[Settings], Settings] = lambda one: one, parts: int = 1) -> Trial:
    return Trial(lambda protocol: ours, settings, parts)


TRIALS: Mapping[str, Trial] = {
    "ours": _ours(),
    "ours, unattended": _ours(unattended),
    "literal WAIR": Trial(lambda protocol: literal_wair()),
    "literal WAIR, one key": Trial(lambda protocol: literal_wair(hybrid=False)),
    f"ours, {EARLY} decisions a batch": _ours(parts=EARLY),
    f"ours, unattended, {EARLY} decisions a batch": _ours(unattended, EARLY),
    "ours, regime forecast": _ours(lambda one: replace(one, forecast=regime_forecast)),
    "ours, decayed mean": _ours(lambda one: replace(one, forecast=decayed_forecast)),
    "new data sorted once (NN)": Trial(keyed(sort_new_data)),
    "Qd-tree of each period (QD)": Trial(at_begin_of_periods(rebuild_tree)),
    "sorted once a period": Trial(lambda protocol: rebuild_each(PERIOD * protocol.batch_ms, DATES)),
    SORTED: Trial(keyed(sort_everything)),
}
"""The policies that need no budget, by name."""

DEPTH = "by depth, the rewriting of ours (DD)"
FREE = {"sorted for free before each batch": True, "sorted for free after each batch": False}


def played(name: str, protocol: Protocol, seed: int, budget: float) -> Replay[SimulatedTable]:
    """Return the replay of one policy. budget: bytes that a batch may rewrite, for DEPTH."""
    steps, table = protocol.steps(seed), empty_table(SCHEMA)
    if name in FREE:
        return sorted_for_free(table, steps, protocol.settings, DATES, before=FREE[name])
    if name == DEPTH:
        trial = Trial(keyed(lambda column: depth_driven(column, budget)))
    else:
        trial = TRIALS[name]
    policy = in_pool(trial.policy(protocol), protocol.batch_ms)
    settings = trial.settings(protocol.settings)
    if trial.parts == 1:
        return replay(table, steps, policy, settings)
    parts = in_parts(steps, trial.parts, protocol.batch_ms)
    return whole_batches(replay(table, parts, policy, settings), trial.parts)


class Log:
    """What runs took, in a file of JSON lines."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs = {_key(one): one for one in (logged(path) if path else [])}

    def kept(self, load: str, name: str, seed: int) -> Path | None:
        """Return where the state of a run that is under way is kept; None without a log."""
        if self._path is None:
            return None
        words = "-".join("".join(filter(str.isalnum, word)) for word in (load, name, str(seed)))
        return self._path.with_name(f"{self._path.name}-{words}.state")

    def run(
        self, load: str, name: str, seed: int, made: Callable[[], Replay[SimulatedTable]]
    ) -> dict[str, Any]:
        """Return the costs of a run by batch, made now if the log does not have it."""
        wanted = {"load": load, "policy": name, "seed": seed}
        if _key(wanted) not in self._runs:
            run = made()
            costs = {
                part: getattr(run, part).round().astype(np.int64).tolist()
                for part in ("read", "rewritten", "rewritten_bytes", "untouched")
            }
            self._runs[_key(wanted)] = {**wanted, **costs}
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(self._runs[_key(wanted)]) + "\n")
            print(load, name, seed, *_periods([self._runs[_key(wanted)]]), flush=True)
        return self._runs[_key(wanted)]


def _key(run: Mapping[str, Any]) -> tuple[str, str, int]:
    return run["load"], run["policy"], run["seed"]


def _ratio(run: Mapping[str, Any], parts: Sequence[str], first: int, last: int) -> float:
    part = slice(first, last)
    spent = sum(sum(run[name][part]) for name in parts)
    return float(spent) / max(float(sum(run["untouched"][part])), 1.0)


BOTH = ("read", "rewritten")


def _periods(runs: Iterable[Mapping[str, Any]], spans: Sequence[tuple[int, int]] = ()) -> list[str]:
    """Return the mean ratios: the whole after the pool, its periods, and the rewriting."""
    runs = list(runs)
    batches = len(runs[0]["read"])
    first = POOL * PERIOD
    spans = spans or [(first, batches), *((n, n + PERIOD) for n in range(first, batches, PERIOD))]
    found = [float(np.mean([_ratio(run, BOTH, *span) for run in runs])) for span in spans]
    found.append(float(np.mean([_ratio(run, ("rewritten",), *spans[0]) for run in runs])))
    return [f"{one:.3f}" for one in found]


TUNED = (1, 2, 3)
"""Seeds on which constants were compared; the others tuned nothing."""

HEAD = ["policy", "seeds", "total", "P3", "P4", "P5", "P6", "rewriting"]


def protocol(log: Log, seeds: Sequence[int], names: Sequence[str]) -> None:
    chosen = Protocol()
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for seed in seeds:
            budget = 0.0
            if name == DEPTH:
                own = log.run("protocol", "ours", seed, lambda s=seed: played("ours", chosen, s, 0))
                budget = sum(own["rewritten_bytes"]) / (chosen.months - POOL * PERIOD)
            runs.setdefault(name, []).append(
                log.run(
                    "protocol", name, seed,
                    lambda n=name, s=seed, b=budget: played(n, chosen, s, b),
                )
            )  # fmt: skip
    rows = [HEAD]
    for name, found in runs.items():
        for group in ([one for one in found if one["seed"] in TUNED],
                      [one for one in found if one["seed"] not in TUNED]):  # fmt: skip
            if group:
                rows.append([name, _named(group), *_periods(group)])
    each = "; ".join(
        f"{name}: " + ", ".join(_periods([one])[0] for one in found) for name, found in runs.items()
    )
    note = (
        "Cost from P3 on relative to no reclustering, mean of the seeds; rewriting a file costs "
        "three reads of it, a batch counts as two days. Unattended: within the room that the table "
        "has earned. NN, DD and the sort after each batch are given the key of the period (ship "
        f"date in P6). What is free pays for no rewrite. Totals by seed: {each}."
    )
    print(write_section("WAIR protocol", "python -m bench.wair protocol", rows, note))


def _named(runs: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(str(one["seed"]) for one in runs)


DEVIATIONS: Mapping[str, Protocol] = {
    "protocol": Protocol(),
    "1: a batch lasts one day": Protocol(batch_ms=Protocol.batch_ms // 2),
    "1: a batch lasts four days": Protocol(batch_ms=Protocol.batch_ms * 2),
    "2: 36 files a month": Protocol(rows=7_200, files=36),
    "3: eight templates of their own columns": Protocol(templates=True),
    "4: global ranges over all dates": Protocol(whole_range=True),
    "4: local ranges end with their month": Protocol(behind=True),
    "5: drawn anew where columns change only": Protocol(anew=(0, 4, 5)),
    "5: the rate is a share": Protocol(by_share=True),
    "6: columns of P6 are drawn 2:1": Protocol(drawn_mix=True),
    "7: rewriting costs two reads": Protocol(rho=2.0),
    "7: rewriting costs four reads": Protocol(rho=4.0),
    "3, 4, 5, 6 as in the paper": Protocol(
        templates=True, whole_range=True, anew=(0, 4, 5), by_share=True, drawn_mix=True
    ),
}


def deviations(log: Log, seeds: Sequence[int], names: Sequence[str]) -> None:
    rows = [["difference", *HEAD]]
    for load, chosen in DEVIATIONS.items():
        for name in names:
            runs = [
                log.run(load, name, seed,
                        lambda n=name, s=seed, c=chosen: played(n, c, s, 0.0))
                for seed in seeds
            ]  # fmt: skip
            rows.append([load, name, _named(runs), *_periods(runs)])
    note = 'Numbers are those of docs/design/wair-protocol.md; costs as in "WAIR protocol".'
    print(write_section("WAIR deviations", "python -m bench.wair deviations", rows, note))


LOADS: Mapping[str, tuple[Callable[[int], Load], str]] = {
    "DSB-like": (dsb_like, "The pool has 24 batches of 72. Goal: 0.55."),
    "TPC-DS-like": (
        tpcds_like,
        "The pool has two of five years; the thirds are the others. The key of the sort after each "
        "batch, the store, was the best of date, store and quantity on seed 1.",
    ),
    "logs, 0.1 %": (logs_like, "The pool has 30 days of 120. Goal: 0.09."),
}
"""What makes each load, and what its section says of it."""


def loads(log: Log, seeds: Sequence[int], names: Sequence[str], chosen: Sequence[str]) -> None:
    for title in chosen:
        of, said = LOADS[title]
        made = [of(seed) for seed in seeds]
        numbers = ", ".join(map(str, seeds))
        rows = [["policy", "seeds", "total", "thirds", "", "", "rewriting"],
                ["no reclustering", numbers, *["1.000"] * 4, "0.000"]]  # fmt: skip
        first, count = made[0].first, len(made[0].steps)
        spans = [(first, count), *pairwise(np.linspace(first, count, 4).astype(int).tolist())]
        for name in names:
            runs = [
                log.run(
                    title, name, seed, partial(_of_load, one, name, log.kept(title, name, seed))
                )
                for seed, one in zip(seeds, made, strict=True)
            ]
            rows.append([name, numbers, *_periods(runs, spans)])
        given = numbers.replace(",", "")
        command = f'python -m bench.wair loads --loads "{title}" --seeds {given}'
        note = f"Cost relative to no reclustering after the pool. {said}"
        print(write_section(f"WAIR load: {title}", command, rows, note))


def _of_load(load: Load, name: str, kept: Path | None) -> Replay[SimulatedTable]:
    """Replay a load. kept: the state after each step, from which a run that was ended goes on."""
    trial = TRIALS[name]
    policy = sort_everything(load.key) if name == SORTED else trial.policy(Protocol())

    def after_pool(table: SimulatedTable, work: Workload, now: Settings) -> Sequence[Action]:
        return policy(table, work, now) if now.now_ms >= load.steps[load.first].now_ms else ()

    settings = trial.settings(load.settings)
    running = Running(empty_table(load.schema), after_pool, settings)
    if kept is not None and kept.exists():
        running = pickle.loads(kept.read_bytes()).resumed(after_pool)  # our own file
    for step in load.steps[running.steps :]:
        running.advance(step)
        if kept is not None:
            part = kept.with_suffix(".part")
            part.write_bytes(pickle.dumps(running))
            part.replace(kept)
    if kept is not None:
        kept.unlink(missing_ok=True)  # else a later log would be given what this code found
    return running.costs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["protocol", "deviations", "loads"])
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--loads", nargs="+", default=[*LOADS])
    parser.add_argument("--policies", nargs="+", default=[*TRIALS, DEPTH, *FREE])
    given = parser.parse_args()
    log = Log(given.log)
    few = [name for name in given.policies if name in ("ours", "literal WAIR, one key")]
    for part in given.parts:
        if part == "protocol":
            protocol(log, given.seeds, given.policies)
        elif part == "deviations":
            deviations(log, given.seeds, few)
        else:
            usual = ("ours", "ours, unattended", "literal WAIR", SORTED)
            names = [name for name in given.policies if name in usual]
            loads(log, given.seeds, names, given.loads)


if __name__ == "__main__":
    main()
