"""Two regressions on few labels, which predict those of all other candidates (PTO, section 3.3.2):
gradient boosting, the paper's default, and a random forest. Need the extra `learn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.methods.features import features, training
from reconciler.advisor.pto.space import Space


def boosting(space: Space, seed: int) -> Choice:
    """Return the candidate that gradient boosting trees predict to be cheapest."""
    from sklearn.ensemble import GradientBoostingRegressor

    return _predicted(space, seed, lambda: GradientBoostingRegressor(random_state=seed))


def forest(space: Space, seed: int) -> Choice:
    """Return the candidate that a random forest predicts to be cheapest."""
    from sklearn.ensemble import RandomForestRegressor

    return _predicted(
        space, seed, lambda: RandomForestRegressor(n_estimators=100, random_state=seed, n_jobs=1)
    )


def _predicted(space: Space, seed: int, make: Callable[[], Any]) -> Choice:
    chosen = training(space, seed)
    labels = space.label(chosen)
    model = make().fit(features(space, chosen), np.array([label.total for label in labels]))
    candidates = space.candidates
    guessed = np.asarray(model.predict(features(space, candidates)))
    return Choice(candidates[int(np.argmin(guessed))], len(labels))
