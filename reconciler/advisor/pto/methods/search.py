"""Searches that label one candidate at a time (PTO, section 4.3.1): a tree-structured Parzen
estimator, which needs the extra `learn`, and random choices. Both label the training set first."""

from __future__ import annotations

import numpy as np

from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.methods.features import training
from reconciler.advisor.pto.space import UNSORTED, CandidateLayout, Space, best

TRIALS = 20
"""Labels beyond the training set."""


def random_search(space: Space, seed: int) -> Choice:
    """Return the cheapest of the training set and of random candidates."""
    random = np.random.default_rng(seed)
    every = space.candidates
    drawn = [every[int(i)] for i in random.permutation(len(every))[:TRIALS]]
    chosen = tuple(dict.fromkeys((*training(space, seed), *drawn)))
    return Choice(best(space.label(chosen)).candidate, len(chosen))


def tpe(space: Space, seed: int) -> Choice:
    """Return the cheapest candidate that optuna's TPE sampler found."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    started = training(space, seed)
    for candidate in started:
        study.enqueue_trial(_parameters(space, candidate))
    asked: dict[CandidateLayout, float] = {}

    def objective(trial: optuna.Trial) -> float:
        spec = trial.suggest_categorical("spec", range(len(space.partitionings)))
        ordering = trial.suggest_categorical("ordering", range(len(space.orderings)))
        ordering = ordering if ordering in space.orderings_of(spec) else UNSORTED
        number = trial.suggest_int("sizes", 0, len(space.sizes) - 1)
        sizes = space.sizes_of(spec)
        candidate = CandidateLayout(spec, ordering, sizes[min(number, len(sizes) - 1)])
        if candidate not in asked:
            asked[candidate] = space.label([candidate])[0].total
        return asked[candidate]

    study.optimize(objective, n_trials=len(started) + TRIALS)
    chosen = min(asked, key=lambda candidate: asked[candidate])
    return Choice(chosen, len(asked))


def _parameters(space: Space, candidate: CandidateLayout) -> dict[str, int]:
    return {
        "spec": candidate.spec,
        "ordering": candidate.ordering,
        "sizes": space.sizes_of(candidate.spec).index(candidate.sizes),
    }
