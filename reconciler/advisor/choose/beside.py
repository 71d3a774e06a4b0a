"""Adds small files to the rewrites of the same plan that leave one small file beside them.

What a rewrite leaves is judged by the rules of small files before it is planned: what the next plan
would merge with it, it takes now, where that pays for the files that are added. So a byte is
rewritten once, and the next plan is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.advisor.choose.binpack import packing_order
from reconciler.advisor.choose.next_merges import next_merges
from reconciler.advisor.choose.recluster import Proposals, exposing, sorted_together
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.situation import Situation
from reconciler.plan.small_files import WRITTEN_SHARE
from reconciler.table.filetable import Int64

MOST_ROUNDS = 4
"""Times that what the rewrites leave is judged again, because the larger file is small as well."""


def with_small_files(situation: Situation, found: Proposals) -> Proposals:
    """Return the rewrites, those that leave one small file with the files that the next plan would
    merge with it."""
    candidates, refused = list(found.candidates), set[bytes]()
    for number in range(MOST_ROUNDS):
        made = _grown(situation, candidates, refused)
        if made is None and not number:
            return found
        if made is None:
            break
        candidates = made
    added = _paths(situation, candidates) - _paths(situation, found.candidates)
    rejected = [one for one in found.rejected if not one.inputs or not added.issuperset(one.inputs)]
    return replace(found, candidates=tuple(candidates), rejected=tuple(rejected))


def _paths(situation: Situation, candidates: Sequence[Candidate]) -> set[str]:
    return {path for one in candidates for path in situation.table.path[one.rows].tolist()}


def _grown(
    situation: Situation, candidates: Sequence[Candidate], refused: set[bytes]
) -> list[Candidate] | None:
    """Return the rewrites after some of them have grown, None if none does. refused: files whose
    joint rewrite does not pay, which is added to."""
    target = situation.settings.target_bytes
    if not any(_leaves_small_file(one, target) for one in candidates):
        return None
    left, found = [one.left(target) for one in candidates], dict(enumerate(candidates))
    for merge in next_merges(situation, left, lambda then: packing_order(then).key):
        files = merge.rows.tobytes()
        if files in refused or not all(
            _leaves_small_file(candidates[number], target) for number in merge.sets
        ):
            continue
        own = [candidates[number] for number in merge.sets]
        rest = [one for number, one in found.items() if number not in merge.sets]
        made = _joint(situation, own, rest, merge.rows)
        if made is None:
            refused.add(files)
        else:
            found = {number: one for number, one in found.items() if number not in merge.sets}
            found[merge.sets[0]] = made
    same = len(found) == len(candidates) and all(
        found[number] is one for number, one in enumerate(candidates)
    )
    return None if same else list(found.values())


def _joint(
    situation: Situation, own: Sequence[Candidate], rest: Sequence[Candidate], rows: Int64
) -> Candidate | None:
    """Return one rewrite of these files instead of `own`, if what it adds pays."""
    spent = situation.spent.cost + sum(one.cost for one in rest)
    made = sorted_together(exposing(situation, rest), rows, spent)
    if made is None:
        return None
    saved = made.saving_low - sum(one.saving_low for one in own)
    cost = made.cost - sum(one.cost for one in own)
    return made if saved > situation.settings.alpha * cost else None


def _leaves_small_file(made: Candidate, target_bytes: int) -> bool:
    left = made.left(target_bytes)
    least = WRITTEN_SHARE * min(target_bytes, left.target_bytes)
    alone = made.files_out == 1 and made.ordering.tree is None
    return alone and int(left.bytes.sum()) < least
