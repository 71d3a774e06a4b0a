"""A namespace that refuses the operator's lists is set aside alone, named, and served later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from reconciler.kube.errors import ApiUnavailable, Forbidden
from reconciler.kube.kinds import CATALOG, JOB, POLICY, SECRET, TABLE_LAYOUT, Kind
from reconciler.operator.index import Index
from reconciler.operator.process import watched_namespaces
from reconciler.operator.process.notices import Notices
from reconciler.operator.process.relist import Relist
from reconciler.operator.process.watched_namespaces import WatchedNamespaces
from reconciler.operator.work import Key, Work

KINDS = (CATALOG, POLICY, TABLE_LAYOUT)


class Server:
    """Two namespaces with one object of each kind, of which any list may be refused."""

    def __init__(self) -> None:
        self.refused: set[tuple[str, Kind]] = set()
        self.down = False
        self.told: list[tuple[str, str]] = []
        self.written: list[tuple[str, str, str]] = []
        self.unwritable: set[str] = set()

    def each(self, kind: Kind, namespace: str | None, *_: Any, **__: Any) -> Iterator[Any]:
        if self.down:
            raise ApiUnavailable("no answer")
        for place in ("a", "b") if namespace is None else (namespace,):
            if (place, kind) in self.refused:
                raise Forbidden(f"{kind.plural} in namespace {place}: the API server refused")
            if kind in KINDS:
                yield self.body(kind, place)

    def body(self, kind: Kind, place: str) -> dict[str, Any]:
        meta = {"name": "one", "namespace": place, "uid": f"{place}-{kind.plural}",
                "resourceVersion": "1", "generation": 1}  # fmt: skip
        spec = {"secretRef": {"name": "keys"}, "catalogRef": {"name": "one"}}
        return {"metadata": meta, "spec": spec, "status": {}}

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return self.body(kind, namespace)

    def get_metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        if (namespace, kind) in self.refused:
            raise Forbidden(f"{kind.kind} {name}: refused")
        return {"metadata": {"uid": namespace, "resourceVersion": "1"}}

    def event(self, regarding: Any, reason: str, message: str, type: str = "") -> None:
        self.told.append((reason, message))

    def put_status(
        self, kind: Kind, namespace: str, name: str, status: dict[str, Any], version: str
    ) -> None:
        if namespace in self.unwritable:
            raise Forbidden("not even that")
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        self.written.append((namespace, ready["status"], ready["reason"]))


class Watching:
    def __init__(self, namespaces: Sequence[str] | None = ("a", "b")) -> None:
        self.server, self.index, self.keys = Server(), Index(), list[Key]()
        self.now = 0.0
        self.watched = WatchedNamespaces(namespaces, lambda: self.now)
        api: Any = self.server
        notices = Notices(api, self.index, "ops", "lease")
        self.relist = Relist(
            api, self.index, lambda key, due: self.keys.append(key), self.watched, notices.broken
        )

    def seen(self) -> set[str]:
        return {namespace for kind in KINDS for namespace, _ in self.index.names(kind)}


@pytest.mark.parametrize("kind", [CATALOG, POLICY, TABLE_LAYOUT, JOB])
def test_at_the_start_one_namespace_that_is_refused_stops_no_other(kind: Kind) -> None:
    found = Watching()
    found.server.refused.add(("b", kind))
    found.relist.fill()
    assert found.seen() == {"a"}
    assert "refused" in found.watched.broken()["b"]
    ((reason, message),) = found.server.told
    assert reason == "NamespaceUnreadable" and "namespace b" in message
    assert found.server.written == ([] if kind in (CATALOG, POLICY) else
                                    [("b", "False", "NamespaceUnreadable")])  # fmt: skip
    assert found.relist.repair() == 0
    found.relist.check_secrets()


def test_without_any_namespace_the_start_is_tried_again() -> None:
    found = Watching()
    found.server.refused |= {("a", POLICY), ("b", POLICY)}
    for _ in range(2):
        with pytest.raises(Forbidden):
            found.relist.fill()
    found.server.refused.clear()
    found.relist.fill()
    assert found.seen() == {"a", "b"} and not found.watched.broken()


def test_a_cluster_wide_refusal_and_an_outage_break_no_namespace() -> None:
    wide = Watching(None)
    wide.server.refused.add(("b", POLICY))
    with pytest.raises(Forbidden):
        wide.relist.fill()
    down = Watching()
    down.server.down = True
    with pytest.raises(ApiUnavailable):
        down.relist.fill()
    assert not wide.watched.broken() and not down.watched.broken()


def test_a_namespace_that_breaks_later_leaves_and_comes_back() -> None:
    found = Watching()
    found.relist.fill()
    found.server.refused |= {("b", kind) for kind in (*KINDS, JOB)}
    found.server.unwritable.add("b")
    assert found.relist.repair() == 0, "the others are repaired"
    found.relist.ask()
    assert found.seen() == {"a"} and not found.watched.serves("b")
    cleaned = {key for key in found.keys if key.namespace == "b"}
    assert {key.kind for key in cleaned} == {Work.CATALOG, Work.POLICY, Work.LAYOUT}
    found.server.refused.clear()
    found.relist.ask()
    assert found.seen() == {"a"}, "it is asked after a pause"
    found.keys.clear()
    found.now += watched_namespaces.FIRST_PAUSE
    found.relist.ask()
    assert found.seen() == {"a", "b"} and not found.watched.broken()
    assert {key.namespace for key in found.keys} == {"b"} and len(found.keys) == 3


def test_questions_get_rarer_and_a_refused_request_alone_breaks_nothing() -> None:
    found = Watching()
    found.relist.fill()
    for _ in range(100):
        found.watched.doubt("a")
        assert len(found.watched.to_ask()) <= 1
    assert found.watched.to_ask() == []
    found.now += watched_namespaces.DOUBT_SECONDS
    found.relist.ask()
    assert found.seen() == {"a", "b"}
    found.server.refused.add(("b", POLICY))
    found.watched.doubt("b")
    found.relist.ask()
    asked = []
    for second in range(3600):
        found.now += 1
        if found.watched.to_ask():
            asked.append(second)
            found.watched.broke("b", "still refused")
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses == sorted(pauses) and pauses[-1] == watched_namespaces.LAST_PAUSE
    assert not found.watched.serves("b") and found.watched.serves("a")


def test_a_secret_that_may_not_be_read_leaves_the_other_secrets_watched() -> None:
    found = Watching()
    found.relist.fill()
    found.server.refused.add(("a", SECRET))
    found.relist.check_secrets()
    assert found.index.secret_version("b", "keys") == "b/1"
    assert found.index.secret_version("a", "keys") is None
