"""The lease: never two holders, by any timing of renewals, stalls and outages."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.kube.api import Api
from reconciler.kube.errors import AlreadyExists, ApiUnavailable, Conflict, NotFound
from reconciler.kube.kinds import LEASE
from reconciler.kube.leader import LeaderLease
from tests.examples import examples
from tests.operator.cluster_objects import until


class Clock:
    def __init__(self, now: float = 0.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


class Server:
    """The API server's semantics for one Lease: versions, conflicts, outages."""

    def __init__(self):
        self.lease = None
        self.versions = itertools.count(1)
        self.down = False
        self.calls = Counter()

    def get(self, kind, namespace, name):
        self._call("get")
        if self.lease is None:
            raise NotFound("absent")
        return {"metadata": dict(self.lease["metadata"]), "spec": dict(self.lease["spec"])}

    def create(self, kind, namespace, body):
        self._call("create")
        if self.lease is not None:
            raise AlreadyExists("there")
        return self._store(body)

    def replace(self, kind, namespace, body):
        self._call("update")
        version = body["metadata"].get("resourceVersion")
        if self.lease is None:
            raise NotFound("absent")
        if version != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("moved")
        return self._store(body)

    def _store(self, body):
        meta = {**body["metadata"], "resourceVersion": str(next(self.versions))}
        self.lease = {"metadata": meta, "spec": dict(body["spec"])}
        return {"metadata": dict(meta), "spec": dict(body["spec"])}

    def _call(self, verb):
        self.calls[verb] += 1
        if self.down:
            raise ApiUnavailable("down")


def instance(server, identity, clock):
    return LeaderLease(server, "ns", "operator", identity, clock=clock)


def test_the_first_leads_and_the_second_only_after_a_whole_silent_duration():
    server, clock = Server(), Clock()
    first, second = instance(server, "a", clock), instance(server, "b", clock)
    assert first.attempt() and first.held()
    assert not second.attempt()
    for _ in range(10):
        clock.now += 5
        assert first.attempt()
        assert not second.attempt()
    clock.now += 14.9
    assert not first.held()
    assert not second.attempt(), "its last sight of a renewal is younger than 15 s"
    clock.now += 0.2
    assert second.attempt() and second.held()
    assert not first.attempt()
    assert server.lease["spec"]["leaseTransitions"] == 1


def test_a_stalled_renewer_no_longer_holds_before_anyone_can_take_over():
    server, clock = Server(), Clock()
    first, second = instance(server, "a", clock), instance(server, "b", clock)
    first.attempt()
    second.attempt()
    clock.now += 9.9
    assert first.held()
    clock.now += 0.2
    assert not first.held()
    assert not second.attempt()


def test_an_outage_ends_leadership_by_time_and_a_renewal_restores_it():
    server, clock = Server(), Clock()
    first = instance(server, "a", clock)
    first.attempt()
    server.down = True
    clock.now += 5
    assert not first.attempt()
    assert first.held(), "one failed renewal is not the end"
    clock.now += 6
    assert not first.held()
    server.down = False
    assert first.attempt() and first.held()


def test_a_steady_holder_renews_with_one_call():
    server, clock = Server(), Clock()
    first = instance(server, "a", clock)
    first.attempt()
    before = sum(server.calls.values())
    for _ in range(10):
        clock.now += 5
        assert first.attempt()
    assert sum(server.calls.values()) - before == 10


def test_a_clean_stop_lets_another_take_over_at_once():
    server, clock = Server(), Clock()
    first, second = instance(server, "a", clock), instance(server, "b", clock)
    first.attempt()
    first.stop()
    assert not first.held()
    assert second.attempt()
    first.stop()
    assert server.lease["spec"]["holderIdentity"] == "b", "a late stop releases nothing of others"


def test_a_lease_deleted_or_edited_by_hand_is_not_held_blindly():
    server, clock = Server(), Clock()
    first = instance(server, "a", clock)
    first.attempt()
    server._store({"metadata": {"name": "operator"}, "spec": {"holderIdentity": "someone"}})
    clock.now += 5
    assert not first.attempt()
    assert not first.held()
    server.lease = None
    clock.now += 5
    assert first.attempt()


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "down", "up"]),
            st.floats(0, 12),
        ),
        max_size=60,
    ),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
)
def test_never_two_hold_whatever_their_clocks_show(script, offsets):
    server = Server()
    clocks = {name: Clock(offset) for name, offset in zip("abc", offsets, strict=True)}
    leases = {name: instance(server, name, clock) for name, clock in clocks.items()}
    for action, pause in script:
        if action in leases:
            leases[action].attempt()
        else:
            server.down = action == "down"
        for clock in clocks.values():
            clock.now += pause
        assert sum(lease.held() for lease in leases.values()) <= 1


@pytest.fixture
def api(cluster) -> Api:
    return Api.from_environment(str(cluster.kubeconfig))


def test_two_instances_on_a_real_server(api, cluster, namespace):
    timing = {"duration": 3.0, "renew_every": 0.5}
    first = LeaderLease(api, namespace, "operator", "a", **timing)
    second = LeaderLease(api, namespace, "operator", "b", **timing)
    first.start()
    until(first.held)
    second.start()
    cluster.stop_api_server()
    until(lambda: not first.held())
    assert not second.held()
    cluster.start_api_server()
    until(lambda: first.held() or second.held())
    leader, other = (first, second) if first.held() else (second, first)
    leader.stop()
    until(other.held)
    other.stop()
    assert api.get(LEASE, namespace, "operator")["spec"].get("holderIdentity", "") == ""


@pytest.mark.parametrize("release", [True, False])
def test_the_lease_is_kept_until_it_expires_if_something_still_runs(release):
    server, clock = Server(), Clock()
    first, second = instance(server, "a", clock), instance(server, "b", clock)
    assert first.attempt()
    assert not second.attempt()
    first.stop(release=release)
    assert not first.held()
    assert second.attempt() is release
    clock.now += 16
    assert second.attempt()
