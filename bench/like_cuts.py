"""What a cut by `LIKE '%x%'` could bring: a table of three columns and a text.

    python -m bench.like_cuts

Each query asks for a twentieth of one of three columns, and a share of them also for one of four
patterns, each met by 5 % of the rows. A pattern is a column of 0 and 1 that no bound knows. Trees
are grown without it, for routed queries alone, and by the rule of conditions between columns: half
of the queries with the condition are routed. What is read is counted as in `bench.block_ids`.
"""

from __future__ import annotations

import sys

import numpy as np

from bench.block_ids import MASK, read
from bench.results import write_section
from bench.tpch_month import Month
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.queries.shape import Shape, unrecorded_shape

ROWS, QUERIES, PATTERNS = 40_000, 150, 4
MET = 0.05
"""Share of the rows that meet a pattern."""
PLAIN = [1, 2, 3]
SEEDS = (1, 2, 3)
NOTE = """Share of rows x queries in the files that are read, mean of three seeds. Queries with
LIKE are read "by bounds" if they are not routed, and "by ids" if they are."""


def month(seed: int) -> Month:
    random = np.random.default_rng(seed)
    values = {field: random.integers(0, 10_000, ROWS) for field in PLAIN}
    return Month(values, {f"p{n}": random.random(ROWS) < MET for n in range(PATTERNS)})


def queries(seed: int, share: float, *, masks: bool) -> list[Shape]:
    """Return the queries. share: of those with a pattern. masks: whether they show it."""
    random, found = np.random.default_rng(seed + 100), []
    for number in range(QUERIES):
        field, low = int(random.choice(PLAIN)), int(random.integers(0, 9_500))
        pattern, has = int(random.integers(PATTERNS)), random.random() < share
        parts: list[Predicate] = [
            Comparison(Ref(field), ">=", 0), Comparison(Ref(field), "<", 1),
        ]  # fmt: skip
        literals = [np.array([low]), np.array([low + 500])]
        if has and masks:
            parts.append(Comparison(Ref(MASK + pattern), "=", 2))
            literals.append(np.array([1]))
        one = np.ones(1)
        found.append(
            unrecorded_shape(f"q{number}", And(tuple(parts)), (), tuple(literals), one, one)
        )
    return found


def main() -> int:
    table = [("queries with LIKE", "leaves a file", "cuts", "by bounds", "by ids")]
    every = [*PLAIN, *(MASK + n for n in range(PATTERNS))]
    for share in (0.5, 1.0):
        for least, each in ((100.0, 1), (25.0, 4)):
            found: dict[str, list[tuple[float, float]]] = {}
            for seed in SEEDS:
                rows = month(seed)
                plain, like = (queries(seed, share, masks=one) for one in (False, True))
                for name, known, grown_for in (
                    ("ranges", PLAIN, plain),
                    ("and LIKE, all routed", every, like),
                    ("and LIKE, half routed", every, plain + like),
                ):
                    _, bounds, ids = read(rows, grown_for, like, known, least, each)
                    found.setdefault(name, []).append((bounds, ids))
            for name, own in found.items():
                bounds, ids = np.mean(own, axis=0)
                table.append((f"{share:.0%}", str(each), name, f"{bounds:.4f}", f"{ids:.4f}"))
    print(write_section("like-cuts", "python -m bench.like_cuts", table, NOTE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
