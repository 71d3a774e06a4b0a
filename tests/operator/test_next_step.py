"""The chain of one TableLayout: each behaviour by name, the whole by laws over random states."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.conditions import Reason
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.layout.facts import JobSeen, LayoutInput, PodSeen, Trouble
from reconciler.operator.layout.next_step import next_step
from reconciler.operator.layout.steps import (
    Adopt,
    CreateAgain,
    DropReservation,
    Launch,
    Propose,
    Retire,
    Settle,
    Stall,
    StopJob,
    Wait,
)
from reconciler.operator.ports import CutShort
from reconciler.operator.proposal_summary import NOTHING_TO_DO, ProposalSummary
from reconciler.operator.stored import Refusal
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.budget import Gate
from reconciler.plan.plan import DeleteState, Plan, PlannedAction
from reconciler.plan.prediction import Prediction
from tests.examples import examples
from tests.said import Said

NOW = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
PLAN, DIGEST = "p-3f9a1c0b77de4c21a0be", "sha256:" + "a" * 64

JOB = JobSeen("tl-x-1", "job-uid", "uid", PLAN, DIGEST, 1, Phase.RUNNING, NOW - MINUTE)
RECORD = JobRecord("tl-x-1", "job-uid", PLAN, DIGEST, 1, Phase.RUNNING, NOW - MINUTE, 300, 7)
AHEAD = replace(RECORD, uid="", phase=Phase.PENDING)


def proposal(plan: tuple[str, str], charges: Sequence[tuple[int, int]]) -> ProposalSummary:
    """A plan by (id, digest) whose actions rewrite so many bytes in so many CPU milliseconds."""
    items = tuple(
        PlannedAction(
            f"a{number:02d}", BinPack(inputs=(f"{number}-in",)), DeleteState(0, 0, 0),
            Prediction(bytes_in=size, cpu_millis=millis),
        )
        for number, (size, millis) in enumerate(charges)
    )  # fmt: skip
    made = Plan(
        id=plan[0], catalog="w", table=("a", "b"), table_uuid="u", policy_hash="h", policy="p",
        base_snapshot_id=1, created=NOW, expires=NOW + 60 * MINUTE, actions=items,
    )  # fmt: skip
    return ProposalSummary("f", NOTHING_TO_DO, plan=made, pending=items, digest=plan[1])


PROPOSAL = proposal((PLAN, DIGEST), [(100, 2500), (200, 4000), (50, 1000)])
NO_WORK = {"proposal": replace(PROPOSAL, pending=()), "gate": Gate(0, "", "")}
FREE = LayoutInput(
    now=NOW,
    leading=True,
    name="tl-x",
    uid="uid",
    jobs=(),
    pods=(),
    due=NOW + 10 * MINUTE,
    known_plans={PLAN: DIGEST},
    proposal=PROPOSAL,
    gate=Gate(2, "", ""),
)


def test_admitted_work_is_launched_with_the_charges_of_the_admitted_prefix():
    decision = next_step(FREE)
    assert isinstance(decision, Launch)
    record = decision.record
    assert (decision.actions, record.rewrite_bytes, record.cpu_seconds) == (2, 300, 7)
    assert (record.attempt, record.phase, record.written) == (1, Phase.PENDING, NOW)


def test_a_cut_short_attempt_is_settled_while_old_evidence_holds_the_next_job():
    old = replace(PROPOSAL, rests_on_workload=True)
    left = replace(
        FREE, proposal=old, cut_short=CutShort("p-old", "sha256:old", "s3://plans/p-old")
    )
    decision = next_step(replace(left, workload_stale="the import fails"))
    assert isinstance(decision, Launch)
    assert (decision.record.plan_id, decision.actions) == ("p-old", 0)
    fresh = next_step(left)
    assert isinstance(fresh, Launch) and fresh.actions > 0


def test_a_second_attempt_has_a_number_of_its_own():
    ended = replace(JOB, phase=Phase.FAILED, attempt=3)
    settled = replace(RECORD, phase=Phase.FAILED, attempt=2)
    decision = next_step(replace(FREE, jobs=(ended,), record=settled))
    assert isinstance(decision, Launch)
    assert decision.record.attempt == 4


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"leading": False}, Wait, ""),
        ({"jobs": None}, Wait, "BackOff"),
        ({"pods": (PodSeen("p", False),)}, Wait, "RewriteRunning"),
        ({"suspended": "spec.suspend is set"}, Wait, "Suspended"),
        ({"catalog_down": "refused"}, Wait, "CatalogUnavailable"),
        ({"owner": "elsewhere"}, Stall, "OwnedElsewhere"),
        ({"invalid": ("InvalidSpec", "bad")}, Stall, "InvalidSpec"),
        ({"trouble": Trouble("ConflictLoop", "five")}, Stall, "ConflictLoop"),
        ({"trouble": Trouble(message="once", until=NOW + MINUTE)}, Wait, "BackOff"),
        ({"trouble": Trouble("ConflictLoop", "five", conflict=True)}, Stall, "ConflictLoop"),
        ({"trouble": Trouble("", "once", NOW + MINUTE, conflict=True)}, Wait, "BackOff"),
        ({"proposal": None}, Propose, None),
        (
            {"gate": Gate(0, "OverBudget", "m")},
            Wait,
            "OverBudget",
        ),
        (NO_WORK, Wait, "NothingToDo"),
        (
            {
                **NO_WORK,
                "proposal": replace(
                    PROPOSAL, pending=(), rests=(Reason.OBJECTIVE_UNREACHABLE, "it would take")
                ),
            },
            Wait,
            "ObjectiveUnreachable",
        ),
        (
            {
                "proposal": replace(PROPOSAL, rests_on_workload=True),
                "workload_stale": "the import fails",
            },
            Wait,
            "TablesPending",
        ),
        ({"deleting": NOW - MINUTE}, Retire, None),
    ],
)
def test_what_stands_in_the_way_is_named(changes, kind, reason):
    decision = next_step(replace(FREE, **changes))
    assert isinstance(decision, kind)
    if reason is not None:
        assert decision.reason == reason


CONFLICTS = (
    Trouble("ConflictLoop", "five", conflict=True),
    Trouble("", "once", NOW + MINUTE, conflict=True),
)


@pytest.mark.parametrize("trouble", CONFLICTS)
def test_conflicts_do_not_hold_up_a_plan_without_work_that_conflicted(trouble):
    beside = replace(PROPOSAL, conflicting=False)
    assert isinstance(next_step(replace(FREE, trouble=trouble, proposal=beside)), Launch)
    ahead = replace(FREE, trouble=trouble, record=AHEAD)
    assert isinstance(next_step(replace(ahead, proposal=beside)), CreateAgain)
    nothing = {**NO_WORK, "proposal": replace(beside, pending=())}
    assert next_step(replace(FREE, trouble=trouble, **nothing)).reason == "NothingToDo"
    assert isinstance(next_step(replace(FREE, trouble=trouble, proposal=None)), Propose)
    other = replace(trouble, conflict=False)
    assert not isinstance(next_step(replace(FREE, trouble=other, proposal=beside)), Launch)


def test_a_write_ahead_of_work_that_conflicts_again_and_again_is_dropped():
    decision = next_step(replace(FREE, trouble=CONFLICTS[0], record=AHEAD))
    assert isinstance(decision, DropReservation)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Wait),
        ({"deleting": NOW - MINUTE}, StopJob),
        ({"suspended": "yes"}, StopJob),
        ({"stop": ("OutsideWindow", "closed")}, StopJob),
        ({"catalog_down": "refused"}, Wait),
        ({"record": None}, Adopt),
        ({"record": AHEAD}, Adopt),
        ({"jobs": (replace(JOB, owner_uid="other"),)}, Stall),
        ({"jobs": (replace(JOB, digest="sha256:b", plan_id="p-x"),), "record": None}, Stall),
        ({"jobs": (JOB, replace(JOB, name="tl-x-2", uid="u2", attempt=2))}, StopJob),
        ({"jobs": (replace(JOB, deleting=True),), "suspended": "yes"}, Wait),
        ({"jobs": (replace(JOB, phase=Phase.FAILED),)}, Settle),
        ({"jobs": (replace(JOB, phase=Phase.FAILED),), "catalog_down": "refused"}, Wait),
        ({"jobs": ()}, Settle),
        ({"jobs": (), "pods": (PodSeen("p", False),)}, Wait),
        ({"jobs": (), "deleting": NOW - MINUTE, "catalog_down": "refused"}, Settle),
        ({"deleting": NOW - 11 * MINUTE}, Retire),
        (
            {
                "jobs": (replace(JOB, phase=Phase.PENDING, created=NOW - 11 * MINUTE),),
                "record": replace(RECORD, phase=Phase.PENDING),
            },
            StopJob,
        ),
    ],
)
def test_a_job_that_lives_or_lived_comes_first(changes, kind):
    given_ = replace(FREE, jobs=(JOB,), record=RECORD)
    assert isinstance(next_step(replace(given_, **changes)), kind)


def test_a_deletion_waits_for_a_job_that_does_not_end_for_ten_minutes_and_no_longer():
    since = NOW - 10 * MINUTE + dt.timedelta(seconds=5)
    stopping = replace(FREE, jobs=(replace(JOB, deleting=True),), record=RECORD, deleting=since)
    decision = next_step(stopping)
    assert isinstance(decision, Wait)
    assert decision.until == since + 10 * MINUTE
    assert isinstance(next_step(replace(stopping, now=decision.until)), Retire)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, CreateAgain),
        ({"proposal": None}, Propose),
        ({"proposal": proposal(("p-0", DIGEST), [(100, 2500), (200, 4000)])}, DropReservation),
        ({"gate": Gate(1, "", "")}, DropReservation),
        ({"gate": Gate(0, "OverBudget", "")}, DropReservation),
        ({"suspended": "yes"}, DropReservation),
        ({"deleting": NOW - MINUTE}, DropReservation),
        ({"owner": "elsewhere"}, DropReservation),
        ({"catalog_down": "refused"}, Wait),
        ({"record": replace(AHEAD, written=NOW - 11 * MINUTE)}, Settle),
    ],
)
def test_a_write_ahead_without_a_job_is_created_or_given_up(changes, kind):
    assert isinstance(next_step(replace(FREE, **{"record": AHEAD, **changes})), kind)


names = st.sampled_from(["tl-x-1", "tl-x-2"])
plans = st.sampled_from([(PLAN, DIGEST), ("p-" + "0" * 20, "sha256:0")])
moments = st.integers(-1200, 0).map(lambda s: NOW + dt.timedelta(seconds=s))
texts = st.sampled_from(["", "", "because"])
jobs = st.builds(
    lambda name, uid, owner, plan, phase, deleting, created: JobSeen(
        name, uid, owner, *plan, 1, phase, created, deleting
    ),
    names,
    st.sampled_from(["job-uid", "u2"]),
    st.sampled_from(["uid", "uid", "uid", "other"]),
    plans,
    st.sampled_from([Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED]),
    st.booleans(),
    moments,
)
records = st.builds(
    lambda name, uid, plan, phase, written: JobRecord(name, uid, *plan, 1, phase, written, 300, 7),
    names,
    st.sampled_from(["", "job-uid"]),
    plans,
    st.sampled_from(list(Phase)),
    moments,
)
proposals = st.builds(
    proposal, plans, st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), max_size=4)
)
answers = st.builds(
    lambda count, reason: Gate(0 if reason else count, reason, ""),
    st.integers(0, 4),
    st.sampled_from(["", "", "OverBudget", "AwaitingApproval"]),
)


def bounded(state: LayoutInput) -> LayoutInput:
    """The gate admits no more than is pending."""
    most = 0 if state.proposal is None else len(state.proposal.pending)
    return replace(state, gate=replace(state.gate, count=min(state.gate.count, most)))


states = st.builds(
    LayoutInput,
    now=st.just(NOW),
    leading=st.sampled_from([True, True, True, False]),
    name=st.just("tl-x"),
    uid=st.just("uid"),
    jobs=st.none() | st.lists(jobs, max_size=2).map(tuple),
    pods=st.none() | st.lists(st.builds(PodSeen, names, st.booleans()), max_size=2).map(tuple),
    due=st.just(NOW + 10 * MINUTE),
    record=st.none() | records,
    deleting=st.none() | moments,
    suspended=texts,
    invalid=st.none() | st.just(Refusal("InvalidSpec", "bad")),
    catalog_down=texts,
    owner=texts,
    stop=st.none() | st.just(Refusal("OutsideWindow", "closed")),
    known_plans=st.just({PLAN: DIGEST}),
    workload_stale=texts,
    trouble=st.just(Trouble()) | st.just(Trouble("NoEffect", "m")),
    proposal=st.none() | proposals,
    gate=answers,
).map(bounded)


@settings(max_examples=examples(1500), deadline=None)
@given(states)
def test_nothing_starts_beside_what_lives_or_is_owed(state):
    decision = next_step(state)
    if isinstance(decision, (Launch, CreateAgain)):
        assert state.leading
        assert state.jobs is not None and not any(job.lives for job in state.jobs)
        assert state.pods is not None and all(pod.ended for pod in state.pods)
        assert not state.suspended and not state.owner and not state.catalog_down
        assert state.deleting is None and state.invalid is None
        assert state.proposal is not None and not state.gate.reason
        admitted = state.proposal.charges[: state.gate.count]
        assert admitted
        held = state.record.rewrite_bytes if isinstance(decision, CreateAgain) else (
            decision.record.rewrite_bytes
        )  # fmt: skip
        assert held <= sum(charge.rewrite_bytes for charge in admitted)
    if isinstance(decision, Launch):
        assert state.record is None or not state.record.unsettled
        held_cpu = decision.record.cpu_seconds
        assert held_cpu >= sum(c.cpu_seconds for c in state.proposal.charges[: state.gate.count])


@settings(max_examples=examples(500), deadline=None)
@given(states)
def test_every_state_has_an_answer_that_comes_back(state):
    decision = next_step(state)
    if isinstance(decision, Wait):
        assert decision.until > state.now
    if isinstance(decision, StopJob):
        assert state.leading and not decision.job.deleting
    if isinstance(decision, Retire):
        assert state.deleting is not None


def test_a_job_without_a_pod_says_where_to_look_once_that_lasts(said: Said) -> None:
    def message_of(age: dt.timedelta, pods: int) -> str:
        job = replace(JOB, phase=Phase.PENDING, pods=pods, created=NOW - age)
        record = replace(RECORD, phase=Phase.PENDING)
        decision = next_step(replace(FREE, jobs=(job,), record=record))
        assert isinstance(decision, Wait)
        return decision.message

    runs = message_of(MINUTE, 1)
    assert message_of(MINUTE / 60, 0) == runs != message_of(MINUTE, 0)
    said(runs)
    said(message_of(MINUTE, 0))


def test_a_dead_catalog_is_reported_while_a_job_runs(said: Said) -> None:
    decision = next_step(replace(FREE, jobs=(JOB,), record=RECORD, catalog_down="no answer"))
    assert isinstance(decision, Wait)
    assert decision.reason == "CatalogUnavailable"
    said(decision.message)


WAITING = replace(JOB, phase=Phase.PENDING, trouble="ErrImagePull: not found", refused=True)


def pending(job: JobSeen, **changes: object) -> LayoutInput:
    record = replace(RECORD, phase=Phase.PENDING)
    return replace(FREE, jobs=(job,), record=record, proposal=None, **changes)


def test_a_refused_image_is_reported_at_once_and_its_slot_is_free_after_a_minute() -> None:
    young = replace(WAITING, created=NOW - MINUTE / 2)
    decision = next_step(pending(young))
    assert isinstance(decision, Wait)
    assert decision.reason == "JobNotStarted" and "ErrImagePull" in decision.message
    old = next_step(pending(replace(WAITING, created=NOW - 1.5 * MINUTE)))
    assert isinstance(old, StopJob) and old.why == "JobNotStarted"


def test_a_refused_job_of_an_older_catalog_is_stopped_at_once_and_is_not_a_failure() -> None:
    young = replace(WAITING, created=NOW, catalog="v1")
    assert isinstance(next_step(pending(young, catalog_version="v1")), Wait)
    changed = next_step(pending(young, catalog_version="v2"))
    assert isinstance(changed, StopJob) and changed.why == "CatalogChanged"
    assert isinstance(next_step(pending(young, catalog_version="")), Wait)  # the catalog is gone
    starting = replace(young, refused=False, trouble="")
    assert isinstance(next_step(pending(starting, catalog_version="v2")), Wait)


def test_a_pod_without_room_waits_as_long_as_before_and_is_not_called_running() -> None:
    crowded = replace(WAITING, refused=False, trouble="unschedulable: 0/3 nodes")
    decision = next_step(pending(replace(crowded, created=NOW - 5 * MINUTE)))
    assert isinstance(decision, Wait) and decision.reason == "JobNotStarted"
    late = next_step(pending(replace(crowded, created=NOW - 11 * MINUTE)))
    assert isinstance(late, StopJob) and late.why == "JobNotStarted"
