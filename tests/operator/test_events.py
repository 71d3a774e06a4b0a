"""Events of catalogs make the tables due that they name, and nothing else; whoever cannot prove who
it is makes none due."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import tracemalloc
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UserError
from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator.cloud_events import TOLERANCE_SECONDS, Refused, Secrets, proved, told
from reconciler.operator.due import LEAST_INTERVAL
from reconciler.operator.index import Index
from reconciler.operator.process import events as module
from reconciler.operator.process.events import BURST, Events, SecretFiles
from reconciler.operator.process.probes import MOST_BODY, Pages
from reconciler.operator.work import Key, Work
from tests.operator.cluster_objects import layout

TOKEN, KEY = b"the-token", b"the-key"
SECRETS = Secrets(TOKEN, KEY)
BEARER = {"authorization": f"Bearer {TOKEN.decode()}"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
LINEITEM, ORDERS = "sales.lineitem-7k2m5qd4xz", "sales.orders-7k2m5qd4xz"


def event(number: int | str = 1, **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(number), "source": "/lake", "type": "committed", **more}


def signed(body: bytes, moment: float, key: bytes = KEY, sent: str = "m1") -> dict[str, str]:
    """Headers of the Standard Webhooks specification."""
    text = f"{sent}.{int(moment)}.".encode() + body
    mark = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {"webhook-id": sent, "webhook-timestamp": str(int(moment)),
            "webhook-signature": f"v1a,other v1,{mark}"}  # fmt: skip


class World:
    """An operator's index of two tables, a clock, and what became due."""

    def __init__(self) -> None:
        self.now, self.leads = 1_000_000.0, True
        self.due: list[tuple[str, float | None]] = []
        self.counted: list[str] = []
        index = Index()
        for name in (LINEITEM, ORDERS):
            body = layout(name)
            body["metadata"] |= {"namespace": "ns", "uid": name, "resourceVersion": "1"}
            index.put(TABLE_LAYOUT, body)
        self.events = Events(
            index, self._enqueue, lambda: self.leads, lambda: SECRETS, self.counted.append,
            lambda: self.now,
        )  # fmt: skip

    def _enqueue(self, key: Key, due: float | None) -> None:
        assert key[:2] == (Work.LAYOUT, "ns")
        self.due.append((key.name, due))

    def send(self, body: Any, headers: dict[str, str] | None = None) -> int:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.events.take({**STRUCTURED, **(BEARER if headers is None else headers)}, text)

    def delivered(self) -> list[tuple[str, float | None]]:
        self.events.deliver()
        found, self.due = self.due, []
        return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    "named",
    [
        {"subject": "sales.lineitem"}, {"subject": "/sales/lineitem"},
        {"subject": "warehouse.sales.lineitem"}, {"data": {"table": "sales.lineitem"}},
        {"data": {"table": ["sales", "lineitem"]}},
        {"data": {"identifier": {"namespace": ["sales"], "name": "lineitem"}}},
        {"data": {"namespace": "sales", "name": "lineitem", "snapshot": 7}},
        {"data": {"namespace": ["sales"], "table": "lineitem"}},
        {"namespace": "sales", "name": "lineitem", "warehouseid": "x"},
    ],
)  # fmt: skip
def test_the_table_that_an_event_names_is_due_at_once(world: World, named: Any) -> None:
    assert world.send(event(**named)) == 202
    assert world.delivered() == [(LINEITEM, None)]
    assert world.delivered() == []


def test_binary_mode_and_batches(world: World) -> None:
    binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/lake", "ce-type": "t",
              "content-type": "application/json"}  # fmt: skip
    assert world.send(b"", {**BEARER, **binary, "ce-subject": "sales%2Forders"}) == 202
    assert world.delivered() == [(ORDERS, None)]
    batch = {**BEARER, "content-type": "application/cloudevents-batch+json"}
    body = [event(2, subject="sales.lineitem"), event(3, subject="nobody.knows")]
    assert world.send(body, batch) == 202
    assert world.delivered() == [(LINEITEM, None)]
    assert world.counted.count("unknown_table") == 1


def test_a_signed_event_counts_by_its_body_alone(world: World) -> None:
    body = json.dumps(event(subject="sales.lineitem")).encode()
    assert world.send(body, signed(body, world.now)) == 202
    assert world.delivered() == [(LINEITEM, None)]
    binary = {"ce-specversion": "1.0", "ce-subject": "sales.orders", "content-type": "text/json"}
    body = b'{"table": "sales.lineitem"}'
    world.now += 100
    assert world.send(body, {**signed(body, world.now, sent="m2"), **binary}) == 202
    assert world.delivered() == [(LINEITEM, None)], "the subject is a header that nobody signed"


def test_keys_in_the_form_of_the_specification() -> None:
    raw = bytes(range(32))
    secrets = Secrets(key=b"whsec_" + base64.b64encode(raw))
    body = json.dumps(event(subject="a.b")).encode()
    headers = {**STRUCTURED, **signed(body, 50.0, raw)}
    assert proved(headers, body, secrets, 60.0)
    (found,) = told(headers, body, signed=True)
    assert found.table == "a.b"
    assert "whsec" not in repr(secrets)


BODY = json.dumps(event(subject="sales.lineitem")).encode()


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"authorization": "Bearer other"}, {"authorization": "Basic the-token"},
        {"authorization": "Bearer"}, signed(BODY, 1_000_000.0, b"another-key"),
        signed(b"another body", 1_000_000.0),
        {**signed(BODY, 1_000_000.0), "webhook-id": "another"},
        {**signed(BODY, 1_000_000.0), "webhook-signature": "v1,"},
    ],
)  # fmt: skip
def test_a_forged_event_makes_nothing_due(world: World, headers: dict[str, str]) -> None:
    assert world.send(BODY, headers) == 401
    assert world.delivered() == [] and world.counted == ["unauthorized"]


@pytest.mark.parametrize("late", [-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1])
def test_a_recorded_event_is_not_taken_later(world: World, late: float) -> None:
    assert world.send(BODY, signed(BODY, world.now + late)) == 401
    assert world.counted == ["late"] and world.delivered() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b"\xff\xfe", 400),
        ({"id": "1"}, 400), ({**event(subject="a.b"), "specversion": "0.3"}, 400),
        ({**event(subject="a.b"), "id": 7}, 400), (event(), 422), (event(data=[1, "a"]), 422),
        (event(subject="x" * 5000), 422), (event(data={"name": "lineitem"}), 422),
    ],
)  # fmt: skip
def test_what_is_no_event_or_names_no_table_is_refused(
    world: World, body: Any, status: int
) -> None:
    assert world.send(body) == status
    assert world.delivered() == []


def test_a_repetition_does_nothing(world: World) -> None:
    for _ in range(3):
        assert world.send(event(subject="sales.lineitem")) == 202
        world.now += 60
    assert world.delivered() == [(LINEITEM, None)]
    assert world.counted == ["taken", "duplicate", "duplicate"]


def test_a_table_is_due_by_events_once_in_an_interval_and_the_last_one_is_not_lost(
    world: World,
) -> None:
    due = []
    for number in range(50):
        world.send(event(number, subject="sales.lineitem"))
        due += world.delivered()
        world.now += 1
    moments = [moment or 1_000_000.0 for _, moment in due]
    assert moments == [1_000_000.0, 1_000_000.0 + LEAST_INTERVAL, 1_000_000.0 + 2 * LEAST_INTERVAL]


def test_a_storm_is_turned_down_and_forgets_no_name(world: World) -> None:
    answers = [world.send(event(n, subject="sales.lineitem")) for n in range(int(BURST) + 50)]
    assert answers.count(202) == int(BURST) and answers.count(429) == 50
    assert world.delivered() == [(LINEITEM, None)]
    world.now += 1
    assert world.send(event(9999, subject="sales.orders")) == 202
    assert world.delivered() == [(ORDERS, None)]


def test_strangers_use_up_nobodys_rate(world: World) -> None:
    body, stranger = event(1, subject="sales.lineitem"), {"authorization": "Bearer wrong"}
    assert {world.send(body, stranger) for _ in range(2 * int(BURST))} == {401}
    assert world.send(body) == 202


def test_what_waits_and_what_is_remembered_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "MOST_KNOWN", 5)
    answers = [world.send(event(n, subject=f"a.t{n}")) for n in range(5)]
    assert answers == [202, 202, 202, 503, 503]
    for n in range(100, 120):
        world.delivered()
        world.now += 1
        assert world.send(event(n, subject="sales.orders")) == 202
    assert len(vars(world.events)["_known"]) == 5


def test_a_storm_of_long_ids_is_not_kept_in_memory(world: World) -> None:
    """10,000 requests of one second, then batches at the rate that is allowed."""
    texts = [
        json.dumps([event(f"{n}-{k}" + "x" * 4000, subject="a.b") for k in range(60)]).encode()
        for n in range(80)
    ]
    batch = {**BEARER, "content-type": "application/cloudevents-batch+json"}
    tracemalloc.start()
    answers = Counter(world.send(texts[n % 20], batch) for n in range(10_000))
    for text in texts:
        world.now += 1
        assert world.send(text, batch) == 202
    held = sum(one.size for one in tracemalloc.take_snapshot().statistics("filename"))
    tracemalloc.stop()
    assert answers == {202: BURST, 429: 10_000 - BURST}
    assert held < 4 << 20, "all ids have 19 MB"


def test_who_does_not_lead_asks_for_a_repetition(world: World) -> None:
    world.leads = False
    assert world.send(event(subject="sales.lineitem")) == 503
    world.leads = True
    assert world.send(event(subject="sales.lineitem")) == 202


def test_secrets_are_read_anew_and_one_is_needed(tmp_path: Path) -> None:
    token, key = tmp_path / "token", tmp_path / "key"
    with pytest.raises(UserError):
        SecretFiles(str(token), "")
    token.write_bytes(b"one\n")
    files = SecretFiles(str(token), str(key))
    assert files.read() == Secrets(b"one", b"")
    token.write_bytes(b"two\n")
    key.write_bytes(b"k")
    assert files.read() == Secrets(b"two", b"k")


def test_an_empty_secret_proves_nothing() -> None:
    for headers in ({"authorization": "Bearer "}, signed(BODY, 0.0, b"")):
        for secrets in (Secrets(), Secrets(b"", b"whsec_")):
            with pytest.raises(Refused):
                proved({**STRUCTURED, **headers}, BODY, secrets, 0.0)


@pytest.fixture
def pages(world: World) -> Iterator[Pages]:
    made = Pages(0, {}, {"/events": world.events.take})
    yield made
    made.stop()


def post(pages: Pages, path: str, body: bytes, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{pages.port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_over_http(world: World, pages: Pages) -> None:
    headers = {**STRUCTURED, **BEARER}
    assert post(pages, "/events", BODY, headers) == 202
    assert world.delivered() == [(LINEITEM, None)]
    assert post(pages, "/events", BODY, STRUCTURED) == 401
    assert post(pages, "/metrics", BODY, headers) == 404
    with socket.create_connection(("127.0.0.1", pages.port)) as raw:
        raw.sendall(f"POST /events HTTP/1.1\r\nContent-Length: {MOST_BODY + 1}\r\n\r\n".encode())
        assert b" 413 " in raw.recv(100)
    with socket.create_connection(("127.0.0.1", pages.port)) as raw:
        raw.sendall(b"POST /events HTTP/1.1\r\nContent-Length: 0000000000001000000000\r\n\r\n")
        assert b" 413 " in raw.recv(100)


def test_connections_that_say_nothing_do_not_pile_up(world: World, pages: Pages) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", pages.port)) for _ in range(100)]
    closed = 0
    for one in idle:
        one.settimeout(0.5 if closed < 60 else 0.01)
        try:
            closed += one.recv(1) == b""
        except OSError as error:
            closed += isinstance(error, ConnectionError)
    assert closed >= 60
    assert threading.active_count() - before <= 40
    for one in idle:
        one.close()
