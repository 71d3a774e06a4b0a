"""The methods by the names that `--method` takes."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.advisor.pto.methods.base import Method
from reconciler.advisor.pto.methods.baselines import default_layout, expert
from reconciler.advisor.pto.methods.mddl import mddl
from reconciler.advisor.pto.methods.regression import boosting, forest
from reconciler.advisor.pto.methods.search import random_search, tpe
from reconciler.advisor.pto.methods.simulation import simulation

DEFAULT_METHOD = "simulation"
METHODS: Mapping[str, Method] = {
    "simulation": simulation,
    "boosting": boosting,
    "forest": forest,
    "tpe": tpe,
    "random": random_search,
    "expert": expert,
    "default": default_layout,
    "mddl": mddl,
}
NEEDS: Mapping[str, str] = {"boosting": "sklearn", "forest": "sklearn", "tpe": "optuna"}
"""Methods that import a package of the extra `learn`."""

UNDECLARABLE = ("mddl",)
"""Methods whose layout cannot be declared: they are compared with only."""
PREDICATE_ORDER = "ordered by predicates, which no table can declare"
"""How mddl orders rows."""
