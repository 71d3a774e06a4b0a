"""No request of ours, however late or often it arrives, removes or rewinds a branch or a tag that
somebody has moved meanwhile.

Each request that the code sends is recorded with the metadata that it was made for. Copies of the
table, registered on a real REST catalog, then get every change of a ref that there can be, and the
request after it. What the server does with it is judged by the refs alone.
"""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway, Recorded
from tests.spark.tables import Bench
from tests.spark.test_late_requests import CASES, WAITS, served

assert served  # a fixture
pytestmark = [pytest.mark.spark, pytest.mark.rest, pytest.mark.second_session]

MAIN, NEW_TAG, NEW_BRANCH = "main", "theirs", "their-branch"
Body = dict[str, Any]
numbers = itertools.count()


class Copies:
    """Copies of tables behind the gateway, with the same metadata file, so the same UUID."""

    def __init__(self, gateway: Gateway) -> None:
        self.port = gateway.behind

    def call(self, method: str, path: str, body: Body | bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, json.loads(answer) if answer else None

    def make(self, request: Recorded) -> str:
        """Return the path of a new copy."""
        space = request.path.rpartition("/tables/")[0]
        name = f"copy_{next(numbers)}"
        body = {"name": name, "metadata-location": request.base}
        status, answer = self.call("POST", f"{space}/register", body)
        assert status == 200, answer
        return f"{space}/tables/{name}"

    def metadata(self, path: str) -> Body:
        status, answer = self.call("GET", path)
        assert status == 200, answer
        return dict(answer["metadata"])

    def change(self, path: str, *updates: Body) -> None:
        status, answer = self.call("POST", path, {"requirements": [], "updates": list(updates)})
        assert status == 200, answer


def refs_of(metadata: Body) -> dict[str, int]:
    return {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}


def point(name: str, snapshot: int, kind: str = "branch") -> Body:
    return {
        "action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot,
    }  # fmt: skip


def changes(metadata: Body) -> Iterator[tuple[Body, ...]]:
    """Every way to move, make or remove one ref; two that a person does by hand; and others."""
    refs, snapshots = refs_of(metadata), [s["snapshot-id"] for s in metadata["snapshots"]]
    yield ()
    for snapshot in snapshots:
        for name, ref in metadata["refs"].items():
            if refs[name] != snapshot:
                yield (point(name, snapshot, ref["type"]),)
        yield (point(NEW_TAG, snapshot, "tag"),)
        yield (point(NEW_BRANCH, snapshot),)
    for name in refs:
        if name != MAIN:
            gone = {"action": "remove-snapshot-ref", "ref-name": name}
            yield (gone,)
            yield point(MAIN, refs[name]), gone
    yield ({"action": "set-properties", "updates": {"theirs": "yes"}},)


def ancestors(metadata: Body, snapshot: int) -> set[int]:
    parents = {s["snapshot-id"]: s.get("parent-snapshot-id") for s in metadata["snapshots"]}
    found: set[int] = set()
    current: int | None = snapshot
    while current is not None and current not in found:
        found.add(current)
        current = parents.get(current)
    return found


def assert_kept(request: Body, made_for: Body, before: Body, after: Body) -> None:
    """What the request left of the refs."""
    removed = {
        snapshot
        for update in request["updates"]
        if update["action"] == "remove-snapshots"
        for snapshot in update["snapshot-ids"]
    }
    left, planned = refs_of(after), refs_of(made_for)
    for name, snapshot in refs_of(before).items():
        if name in (NEW_TAG, NEW_BRANCH) and snapshot in removed:
            continue  # the protocol has no requirement that a ref of any name does not exist
        if name == WAITS.branch and snapshot == planned.get(name):
            continue  # our own, as it was
        assert name in left, (name, "was removed")
        assert snapshot in ancestors(after, left[name]), (name, "was moved back")
    theirs = before.get("properties", {}).get("theirs")
    assert after.get("properties", {}).get("theirs") == theirs


@pytest.mark.parametrize("case", CASES)
def test_no_request_takes_a_ref_from_others(served: Bench, gateway: Gateway, case: str) -> None:
    _, work = CASES[case][0](served)
    gateway.recorded = []
    served.run(work)
    requests, gateway.recorded = gateway.recorded, None
    assert requests
    copies, accepted = Copies(gateway), 0
    for request in requests:
        body = json.loads(request.body)
        made_for = copies.metadata(copies.make(request))
        for change in changes(made_for):
            path = copies.make(request)
            if change:
                copies.change(path, *change)
            before = copies.metadata(path)
            identifier = {"namespace": ["jobs"], "name": path.rpartition("/")[2]}
            sent = {**body, "identifier": identifier} if "identifier" in body else body
            for _ in range(2):  # it may also be delivered twice
                status, _ = copies.call("POST", path, sent)
                accepted += status == 200
                assert_kept(body, made_for, before, copies.metadata(path))
    assert accepted >= len(requests)  # each is accepted where nothing was changed
