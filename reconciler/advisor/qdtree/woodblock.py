"""Woodblock (Yang et al., "Qd-tree", section 5): learns by Proximal Policy Optimization which cuts
are worth making, by growing trees again and again.

An episode grows a tree of one node's rows: all rows in the first episode of a round, those of a
node of the best tree so far in the others, since what a subtree reads does not depend on the rest
of the tree. A step is a node and its legal cut; its reward is the share of rows x cost that the
leaves below the node skip (5.2.2). After each round the networks learn from its steps. The best
tree so far is always at hand, and is never worse than the one to start from. Episodes are counted,
not timed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.advisor.qdtree.codes import codes_of, planted
from reconciler.advisor.qdtree.greedy import EXACT, Gains, Growth, Node, gains, settle, split
from reconciler.advisor.qdtree.networks import (
    Float32,
    Learner,
    Steps,
    filled,
    forward,
    initial,
    joined,
    log_odds,
    plain_relu,
)
from reconciler.advisor.qdtree.problem import Problem
from reconciler.table.filetable import Int64

VERSION = 1
"""Of the search: another one finds other trees."""
ROUND = 16
"""Episodes between two updates of the networks."""
PRIOR = 2.0
"""Power of the greedy gain that the policy starts from: an untrained one draws cuts in proportion
to it, and the network learns by how much that is wrong."""
CREDIT = 0.5
"""Of the gain of each box alone in that prior (`Growth.credit`)."""
FAINT = 1e-4
"""Of the best cut's gain, that each legal cut has in the prior at least."""
IMITATIONS = 8
"""Times that the networks learn the tree to start from, before the first episode."""


@dataclass(frozen=True)
class Training:
    """The search for a tree by Woodblock: all that its result follows from."""

    problem: Problem
    """Rows and queries."""
    least: float
    """Rows of the table that a leaf has at least."""
    start: Node
    """The best tree known before."""
    episodes: int
    """Trees that are grown."""
    seed: int = 0
    """Of all that is drawn."""

    @cached_property
    def lasting(self) -> str:
        """Return the hash of all inputs but the number of episodes, hex: a search for more of them
        goes on where one for fewer ended."""
        problem, digest = self.problem, hashlib.sha256()
        plain = VERSION, ROUND, self.least, self.seed, codes_of(self.start)
        digest.update(repr(plain).encode())
        for array in (
            problem.weight, problem.cost, problem.query, problem.code, problem.low, problem.high,
            problem.null, problem.nan, problem.wants_value, problem.wants_null, problem.wants_nan,
        ):  # fmt: skip
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """Return the hash of all inputs, by which the tree that was found is kept."""
        return hashlib.sha256(f"{self.lasting} {self.episodes}".encode()).hexdigest()


@dataclass(frozen=True)
class Progress:
    """How far a search has come, between two rounds."""

    name: str
    """`Training.lasting` of the search."""
    rounds: int
    """Rounds that are done."""
    best: tuple[int, ...]
    """The best tree so far, by codes."""
    weights: dict[str, Float32]
    """The parameters of the networks."""
    optimiser: tuple[npt.NDArray[Any], ...]
    """The optimiser's state."""


def trained(
    given: Training,
    progress: Progress | None = None,
    keep: Callable[[Progress], None] = lambda progress: None,
) -> Node:
    """Return the best tree found; the one to start from if none is better.

    progress: what an earlier search kept, None to begin; the result is the same. keep: is called
    after each round. Raises ModuleNotFoundError without jax and optax, where anything is to be
    learned.
    """
    best = planted(given.problem, given.start, codes_of(given.start), given.least) or given.start
    if not given.episodes or not _cuttable(best, given.least):
        return best
    agent = _resumed(given, progress) or _Agent.new(given, best)
    rounds, rest = divmod(given.episodes, ROUND)
    while agent.rounds < rounds:
        agent.play(ROUND)
        keep(agent.progress())
    agent.play(rest)
    return agent.best


def _resumed(given: Training, progress: Progress | None) -> _Agent | None:
    """Return the search as it was kept; None if it is another one, or cannot be used."""
    if progress is None or progress.name != given.lasting:
        return None
    if progress.rounds * ROUND > given.episodes:
        return None
    best = planted(given.problem, given.start, progress.best, given.least)
    if best is None or best.cost > given.start.cost * (1.0 + EXACT):
        return None
    shapes = {name: one.shape for name, one in _first_weights(given).items()}
    if {name: one.shape for name, one in progress.weights.items()} != shapes:
        return None
    try:
        learner = Learner(progress.weights, progress.optimiser)
    except ValueError:
        return None
    return _Agent(given, best, learner, progress.rounds)


def _first_weights(given: Training) -> dict[str, Float32]:
    random = np.random.default_rng([given.seed, 0])
    bits = 2 * sum(_bits(given.problem))
    return initial(bits, len(given.problem.first), random)


def _bits(problem: Problem) -> list[int]:
    """Return how many bits the code of each column takes."""
    return [max(1, len(places).bit_length()) for places in problem.places]


def _cuttable(node: Node, least: float) -> bool:
    return node.weight >= 2.0 * least and node.own > 0.0


@dataclass
class _Agent:
    """A search under way: the best tree, and what was learned so far."""

    given: Training
    """What is searched."""
    best: Node
    """The best tree so far."""
    learner: Learner
    """The networks."""
    rounds: int
    """Rounds that are done."""
    parents: dict[int, Node] = field(default_factory=dict)
    """The parent of each node of the best tree, by the node's identity."""

    @classmethod
    def new(cls, given: Training, best: Node) -> _Agent:
        """Return the search before its first episode; it knows the tree to start from."""
        agent = cls(given, best, Learner(_first_weights(given)), 0)
        random = np.random.default_rng([given.seed, 1])
        known = agent.steps_of(best)
        for _ in range(IMITATIONS if known is not None else 0):
            assert known is not None
            agent.learner.learn(known, random, imitate=True)
        return agent

    def progress(self) -> Progress:
        return Progress(
            self.given.lasting, self.rounds, codes_of(self.best), dict(self.learner.weights),
            self.learner.state,
        )  # fmt: skip

    def play(self, episodes: int) -> None:
        """Run the episodes of a round; a whole round is learned from."""
        random = np.random.default_rng([self.given.seed, 2, self.rounds])
        found = []
        for number in range(episodes):
            node = self.best if not number else self._drawn(random)
            tree, steps = self._grown(node, random)
            found += [] if steps is None else [steps]
            if tree.cost < node.cost * (1.0 - EXACT):
                self._replace(node, tree)
        if episodes < ROUND:
            return
        self.rounds += 1
        if found:
            self.learner.learn(joined(found), random)

    def _drawn(self, random: np.random.Generator) -> Node:
        """Return a node of the best tree that can be cut, drawn as climbing draws them."""
        nodes, self.parents = [self.best], {}
        for node in self.best.inner():
            for child in node.children:
                self.parents[id(child)] = node
                if _cuttable(child, self.given.least):
                    nodes.append(child)
        odds = np.array([1.0 / np.sqrt(len(node.rows)) for node in nodes])
        return nodes[int(random.choice(len(nodes), p=odds / odds.sum()))]

    def _replace(self, node: Node, tree: Node) -> None:
        """Put a better subtree in a node's place."""
        gained = node.cost - tree.cost
        above = self.parents.get(id(node)) if node is not self.best else None
        node.cut, node.children, node.cost = tree.cut, tree.children, tree.cost
        while above is not None:
            above.cost -= gained
            above = self.parents.get(id(above))

    def _grown(self, node: Node, random: np.random.Generator) -> tuple[Node, Steps | None]:
        """Return a tree of a node's rows by the policy, and its steps: an episode."""
        root = Node(node.rows, node.live, node.weight, node.own, node.own)
        level, nodes, parts = [root], list[Node](), list[Steps]()
        while level:
            now, made = self._seen(level)
            if made is None:
                break
            logs = log_odds(self._logits(made) + made.prior, made.legal)
            chosen = (logs + random.gumbel(size=logs.shape)).argmax(axis=1)
            parts.append(_with_cuts(made, chosen, logs))
            level = []
            for at, cut in zip(now, chosen, strict=True):
                at.cut, at.children = int(cut), split(self.given.problem, at, int(cut))
                level += at.children
            nodes += now
        if not nodes:
            return root, None
        rewards = _rewards(self.given.problem, root, nodes)
        settle(root)
        return root, _with_rewards(joined(parts), rewards)

    def _logits(self, steps: Steps) -> Float32:
        logits, value = forward(self.learner.weights, steps.states, plain_relu)
        steps.value[:] = value
        found: Float32 = logits
        return found

    def steps_of(self, root: Node) -> Steps | None:
        """Return the steps of a tree that is known."""
        nodes = root.inner()
        now, made = self._seen(nodes)
        if made is None:
            return None
        chosen = np.array([node.cut for node in now])
        logs = log_odds(self._logits(made) + made.prior, made.legal)
        return _with_rewards(
            _with_cuts(made, chosen, logs), _rewards(self.given.problem, root, now)
        )

    def _seen(self, nodes: Sequence[Node]) -> tuple[list[Node], Steps | None]:
        """Return those of the nodes that can be cut, and what the policy sees of them."""
        growth, problem = Growth(self.given.least, CREDIT), self.given.problem
        seen, found = [], list[Gains]()
        for node in nodes:
            one = gains(problem, node, growth) if _cuttable(node, self.given.least) else None
            if one is not None:
                seen.append(node)
                found.append(one)
        if not seen:
            return [], None
        zeros = np.zeros(len(seen), np.float32)
        return seen, Steps(
            filled(self._described(seen)), filled(np.stack([one.allowed for one in found])),
            filled(np.stack([_prior(one) for one in found])), np.zeros(len(seen), np.int64),
            zeros, zeros.copy(), zeros.copy(),
        )  # fmt: skip

    def _described(self, nodes: Sequence[Node]) -> Float32:
        """Return the least and the greatest code of each column of each node in bits: its
        description (3.2), frozen to its rows. Cuts are ranges, so that no mask is needed."""
        problem = self.given.problem
        start = np.cumsum([0, *(len(one) + 1 for one in problem.places)])[:-1]
        own = [problem.code[node.rows] for node in nodes]
        ends = np.stack([[one.min(axis=0), one.max(axis=0)] for one in own]) - start
        bits = _bits(problem)
        parts = [
            (ends[:, :, column, None] >> np.arange(count)) & 1 for column, count in enumerate(bits)
        ]
        return np.concatenate(parts, axis=2).reshape(len(nodes), -1).astype(np.float32)


def _prior(found: Gains) -> Float32:
    gain = np.where(found.allowed, np.maximum(found.gain, 0.0), 0.0)
    share = gain / max(float(gain.max()), 1e-300)
    return (PRIOR * np.log(np.maximum(share, FAINT))).astype(np.float32)


def _with_cuts(steps: Steps, chosen: Int64, logs: Any) -> Steps:
    odds = logs[np.arange(len(chosen)), chosen].astype(np.float32)
    return Steps(
        steps.states, steps.legal, steps.prior, chosen.astype(np.int64), odds, steps.value,
        steps.reward,
    )  # fmt: skip


def _with_rewards(steps: Steps, rewards: Float32) -> Steps:
    return Steps(
        steps.states, steps.legal, steps.prior, steps.cut, steps.odds, steps.value, rewards
    )


def _rewards(problem: Problem, root: Node, nodes: Sequence[Node]) -> Float32:
    """Return the share of rows x cost that the leaves below each of the nodes skip (5.2.2)."""
    for node in reversed(root.inner()):
        node.cost = sum(child.cost for child in node.children)
    every = float(problem.cost.sum())
    return np.array([1.0 - node.cost / (node.weight * every) for node in nodes], np.float32)
