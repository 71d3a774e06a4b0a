"""Woodblock's networks (Yang et al., "Qd-tree", section 5.2.3): a policy and a value on a shared
trunk of two layers, learned by Proximal Policy Optimization.

Trees are grown by numpy, whose batches may have any size; gradients are jax's, over batches of one
size, so that it compiles once a problem. jax and optax are the extra `woodblock`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Bool, Float64, Int64

Float32 = npt.NDArray[np.float32]
Weights = dict[str, Float32]
"""The parameters by name."""

HIDDEN = 512
"""Units of each layer of the trunk, as in the paper."""
RATE, CLIP, ENTROPY, VALUE, NORM = 5e-4, 0.2, 0.01, 0.5, 0.5
"""The learning rate of Adam, PPO's limit of the ratio, the weights of entropy and of the value's
error, and the largest norm of a gradient."""
EPOCHS, BATCH = 4, 256
"""Passes over the steps of a round, and steps of a gradient."""
UNIT = 64
"""Bits and codes are filled up to a multiple of it: one compilation serves many problems."""
ILLEGAL = -1e9
"""The logit of a cut that is not legal."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Decisions of episodes. Arrays have the shape [steps], or [steps, ...]."""

    states: Float32
    """[steps, bits], each node's description."""
    legal: Bool
    """[steps, codes], which cuts were allowed."""
    prior: Float32
    """[steps, codes], what was added to the logits of the policy."""
    cut: Int64
    """The code that was chosen."""
    odds: Float32
    """The logarithm of its probability."""
    value: Float32
    """The reward that was expected."""
    reward: Float32
    """The share of rows x cost below the node that was skipped."""

    def __len__(self) -> int:
        return len(self.cut)

    def take(self, index: Int64) -> Steps:
        return Steps(*(getattr(self, one.name)[index] for one in fields(self)))


def filled(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array with columns of zeros up to a multiple of UNIT."""
    more = np.zeros((len(values), -values.shape[1] % UNIT), dtype=values.dtype)
    return np.concatenate([values, more], axis=1)


def joined(parts: Sequence[Steps]) -> Steps:
    """Return the steps of all parts, in their order."""
    return Steps(*(
        np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Steps)
    ))  # fmt: skip


def initial(bits: int, codes: int, random: np.random.Generator) -> Weights:
    """Return parameters with which all legal cuts are nearly alike."""
    bits, codes = (-(-count // UNIT) * UNIT for count in (bits, codes))

    def layer(rows: int, columns: int, gain: float) -> Float32:
        scale = np.sqrt(gain / max(rows, 1))
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    return {
        "first": layer(bits, HIDDEN, 2.0), "first_bias": np.zeros(HIDDEN, np.float32),
        "second": layer(HIDDEN, HIDDEN, 2.0), "second_bias": np.zeros(HIDDEN, np.float32),
        "policy": layer(HIDDEN, codes, 1e-4), "policy_bias": np.zeros(codes, np.float32),
        "value": layer(HIDDEN, 1, 1e-2), "value_bias": np.zeros(1, np.float32),
    }  # fmt: skip


def forward(weights: Mapping[str, Any], states: Any, relu: Callable[[Any], Any]) -> Any:
    """Return the logits [states, codes] and the values [states]; the same in numpy and in jax."""
    trunk = relu(states @ weights["first"] + weights["first_bias"])
    trunk = relu(trunk @ weights["second"] + weights["second_bias"])
    logits = trunk @ weights["policy"] + weights["policy_bias"]
    return logits, (trunk @ weights["value"] + weights["value_bias"])[:, 0]


def log_odds(logits: Float32, legal: Bool) -> Float64:
    """Return the logarithm of the probability of each cut, float64[states, codes]."""
    masked = np.where(legal, logits, ILLEGAL).astype(np.float64)
    masked -= masked.max(axis=1, keepdims=True)
    found: Float64 = masked - np.log(np.exp(masked).sum(axis=1, keepdims=True))
    return found


def plain_relu(values: Any) -> Any:
    return np.maximum(values, 0.0)


class Learner:
    """Improves parameters by the steps of episodes."""

    def __init__(self, weights: Weights, state: Sequence[npt.NDArray[Any]] = ()) -> None:
        """state: of an earlier learner, () for a new one.

        Raises ModuleNotFoundError without jax and optax, ValueError for a state of others.
        """
        import jax

        self.weights = weights
        optimiser, self._step = _compiled()
        self._state = optimiser.init(weights)
        if state:
            leaves, form = jax.tree.flatten(self._state)
            if [one.shape for one in state] != [np.shape(one) for one in leaves]:
                raise ValueError("the optimiser's state is of another network")
            self._state = jax.tree.unflatten(form, list(state))

    @property
    def state(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the optimiser's state, arrays in its own order."""
        import jax

        return tuple(np.asarray(one) for one in jax.tree.leaves(self._state))

    def learn(self, steps: Steps, random: np.random.Generator, *, imitate: bool = False) -> None:
        """imitate: whether the chosen cuts are to be repeated, whatever they brought."""
        for _ in range(EPOCHS):
            order = random.permutation(len(steps))
            for begin in range(0, len(order), BATCH):
                own = order[begin : begin + BATCH]
                counts = (np.arange(BATCH) < len(own)).astype(np.float32)
                part = steps.take(np.resize(own, BATCH))
                arrays = tuple(getattr(part, one.name) for one in fields(part))
                self.weights, self._state = self._step(
                    self.weights, self._state, arrays, counts, np.float32(imitate)
                )
        self.weights = {name: np.asarray(value) for name, value in self.weights.items()}


@cache
def _compiled() -> tuple[Any, Callable[..., Any]]:
    """Return the optimiser and one update by it: (weights, state, arrays, counts, imitate) to new
    weights and state."""
    import jax
    import optax

    optimiser = optax.chain(optax.clip_by_global_norm(NORM), optax.adam(RATE))

    def updated(weights: Any, state: Any, arrays: Any, counts: Any, imitate: Any) -> Any:
        slope = jax.grad(_loss)(weights, arrays, counts, imitate)
        change, state = optimiser.update(slope, state, weights)
        return optax.apply_updates(weights, change), state

    return optimiser, jax.jit(updated)


def _loss(weights: Any, arrays: Any, counts: Any, imitate: Any) -> Any:
    """Return PPO's loss of a batch: the clipped policy gain, the entropy and the value's error."""
    import jax
    import jax.numpy as jnp

    def mean(values: Any) -> Any:
        return (values * counts).sum() / counts.sum()

    states, legal, prior, cut, odds, value, reward = arrays
    logits, expected = forward(weights, states, jax.nn.relu)
    logs = jax.nn.log_softmax(jnp.where(legal, logits + prior, ILLEGAL))
    now = jnp.take_along_axis(logs, cut[:, None], 1)[:, 0]
    better = reward - value - mean(reward - value)
    better = better / (jnp.sqrt(mean(better**2)) + 1e-6)
    ratio = jnp.exp(now - odds)
    clipped = jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP)
    gain = jnp.minimum(ratio * better, clipped * better)
    entropy = -(jnp.exp(logs) * jnp.where(legal, logs, 0.0)).sum(axis=1)
    chosen = imitate * now + (1.0 - imitate) * (gain + ENTROPY * entropy)
    return mean(VALUE * (expected - reward) ** 2 - chosen)
