"""Keys that a catalog hands out are renewed before they end, and when the store refuses them."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.choices import EngineType
from reconciler.catalog import vended
from reconciler.catalog.load import connect, load_table
from reconciler.catalog.vended import Keys, VendedFileIO, due_at, expires_at
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step
from reconciler.rewrite.storage import Scratch
from reconciler.state.state import StateStore
from tests.catalog.vending import Store, Vending
from tests.loop.conftest import rows_of
from tests.loop.test_step import DECLARED, EVERYTHING, multiset, never, quiet, step_of

LENDS = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
         "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"]  # fmt: skip
ENDS = "s3.session-token-expires-at-ms"


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.stop()


@pytest.fixture
def vending(store: Store, tmp_path: Path) -> Iterator[Vending]:
    made = Vending(store, tmp_path / "catalog")
    table = made.own.create_table("loop.t", rows_of(0, 9).schema)
    for number in range(3):
        table.append(rows_of(number, 200))
    yield made
    made.rest.stop()


def io_of(vending: Vending) -> VendedFileIO:
    io = load_table(connect(vending.config), vending.config, ("loop", "t")).io
    assert isinstance(io, VendedFileIO)
    return io


def a_file(vending: Vending) -> str:
    (first, *_) = vending.own.load_table("loop.t").scan().plan_files()
    return first.file.file_path


def size(io: Any, path: str) -> int:
    with io.new_input(path).open() as stream:
        return len(stream.read())


def test_when_keys_are_due() -> None:
    def at(seconds: float) -> dict[str, str]:
        return {ENDS: str(int(seconds * 1000))}

    assert due_at(at(3600), 0) == 3600 - vended.MARGIN_SECONDS
    assert due_at(at(60), 0) == 30
    assert due_at(at(60), 100) == 60, "they ended before they came"
    assert due_at({}, 0) is None
    assert expires_at({ENDS: "soon", "gcs.oauth2.token-expires-at": "9000"}) == 9
    assert expires_at({"adls.sas-token-expires-at-ms.acct": "7000", ENDS: "9000"}) == 7


def test_keys_are_renewed_before_they_end(vending: Vending, store: Store) -> None:
    vending.seconds = 3.0
    io, path = io_of(vending), a_file(vending)
    before = io.properties["s3.access-key-id"]
    io.keys.due = time.time()
    assert size(io, path) == len(store.objects[path.partition("lake/")[2]])
    assert io.properties["s3.access-key-id"] != before
    assert store.refused == []


@pytest.mark.parametrize("endpoints", [None, LENDS])
def test_keys_that_are_refused_are_renewed_once(
    vending: Vending, store: Store, endpoints: list[str] | None
) -> None:
    """Whatever they say: clocks differ, and keys are revoked."""
    vending.rest.endpoints = endpoints
    io, path = io_of(vending), a_file(vending)
    known, asked = size(io, path), vending.asked
    for work in (
        lambda: size(io, path) == known,
        lambda: len(io.new_input(path)) == known,
        lambda: io.new_input(path).exists(),
        lambda: io.new_output(f"{path}.new").create().close() is None,
        lambda: io.delete(f"{path}.new") is None,
    ):
        store.end_all()
        vars(io.keys)["_rests_until"] = 0.0
        assert work()
    assert vending.asked - asked == 5
    lent = [one for one in vending.rest.paths if one.endswith("/credentials")]
    assert len(lent) == (5 if endpoints else 0)


def test_a_catalog_that_hands_out_bad_keys_is_asked_once(vending: Vending, store: Store) -> None:
    vending.seconds, vending.said = 0.0, 3600.0
    io, path, asked = io_of(vending), a_file(vending), vending.asked
    for _ in range(20):
        with pytest.raises(OSError):
            size(io, path)
    assert vending.asked - asked == 1, "it rests after keys that did not help"


@pytest.mark.parametrize("endpoints", [None, LENDS])
def test_a_catalog_whose_keys_look_expired_is_asked_once_for_a_renewal(
    vending: Vending, store: Store, endpoints: list[str] | None
) -> None:
    """By a clock that is behind ours: the store takes the keys."""
    vending.said, vending.rest.endpoints = -60.0, endpoints
    io, path = io_of(vending), a_file(vending)
    asked, before = vending.asked, io.keys.properties["s3.access-key-id"]
    assert io.properties["s3.access-key-id"] != before
    assert vending.asked - asked == 1
    opening = opening_of(vending.config, ("loop", "t"))
    asked = vending.asked
    assert opening.vending is not None
    assert opening.vending.properties()["s3.access-key-id"] not in ("", before)
    assert vending.asked - asked == 1
    assert size(io, path) == size(opening.open(path), path)
    assert store.refused == []


@pytest.mark.parametrize("endpoints", [None, LENDS])
def test_keys_stay_when_the_catalog_hands_out_none(
    vending: Vending, store: Store, endpoints: list[str] | None
) -> None:
    """The last ones, and not those that came with the table; nor does a process go on with keys of
    its own."""
    vending.rest.endpoints = endpoints
    opening = opening_of(vending.config, ("loop", "t"))
    path = a_file(vending)
    for io in (io_of(vending), opening.open(path)):
        assert isinstance(io, VendedFileIO)
        first = io.properties["s3.access-key-id"]
        io.keys.due = 0.0
        second = io.properties["s3.access-key-id"]
        vars(io.keys)["_rests_until"] = io.keys.due = 0.0
        vending.rest.lends = list
        last = io.properties["s3.access-key-id"]
        assert (io.keys.number, last != first, last) == (1, True, second)
        assert size(io, path) == len(store.objects[path.partition("lake/")[2]])
        vending.rest.lends = vending.lends


def test_a_catalog_that_hands_out_no_keys_leaves_the_own_ones(vending: Vending) -> None:
    vending.rest.lends = list
    io = load_table(connect(vending.config), vending.config, ("loop", "t")).io
    assert not isinstance(io, VendedFileIO)
    opening = opening_of(vending.config, ("loop", "t"))
    assert opening.vending is None
    assert not isinstance(opening.open(a_file(vending)), VendedFileIO)


def test_good_keys_stay_while_the_catalog_does_not_answer(
    vending: Vending, caplog: pytest.LogCaptureFixture
) -> None:
    io, path = io_of(vending), a_file(vending)
    vending.rest.deaf = True
    keys = dict(io.properties)
    io.keys.due = 0.0
    vars(io.keys)["ask"] = lambda: (_ for _ in ()).throw(RuntimeError(str(keys)))
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert size(io, path)
    said = [one for one in caplog.messages if "RuntimeError" in one]
    assert len(said) == 1, "it rests after a failure"
    texts = f"{caplog.text} {io.keys!r} {io!r}"
    assert not any(str(keys[name]) in texts for name in keys if vended.is_vended(name))


def test_one_thread_asks_for_all() -> None:
    asked: list[int] = []

    def ask() -> dict[str, str]:
        asked.append(1)
        time.sleep(0.05)
        return {ENDS: str(int((time.time() + 3600) * 1000)), "s3.access-key-id": "new"}

    keys = Keys({ENDS: "1", "s3.access-key-id": "old"}, ask)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(keys.current()[1]["s3.access-key-id"]))
        for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (found, len(asked)) == (["new"] * 8, 1)


@pytest.mark.parametrize("name", ["old", "new"])
def test_keys_that_do_not_help_are_not_asked_for_every_second(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The old ones once more, and new ones that are expired."""
    now = [1_000.0]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(vended, "time", clock)
    asked: list[float] = []

    def ask() -> dict[str, Any]:
        asked.append(now[0])
        number = len(asked) if name == "new" else 0
        return {ENDS: "1000000", "s3.access-key-id": f"{number}", "of this process": object()}

    keys = Keys({ENDS: "1000000", "s3.access-key-id": "0"}, ask)
    for _ in range(20):
        keys.current()
        now[0] += 1.0
    assert asked == [1_000.0, 1_000.0 + vended.FAILED_SECONDS]
    assert keys.number == (2 if name == "new" else 0)


def test_what_another_process_gets_renews_its_keys_itself(vending: Vending, store: Store) -> None:
    opening = pickle.loads(pickle.dumps(opening_of(vending.config, ("loop", "t"))))
    path = a_file(vending)
    length = len(store.objects[path.partition("lake/")[2]])
    store.end_all()
    with Scratch(opening) as scratch:
        with scratch.in_parts(path, length) as fetch:
            assert fetch is not None
            fetch(0, 4)
            store.end_all()
            vars(opening.open(path).keys)["_rests_until"] = 0.0
            fetch(4, length - 4)
            assert scratch.path(path).read_bytes() == store.objects[path.partition("lake/")[2]]
        store.end_all()
        vars(opening.open(path).keys)["_rests_until"] = 0.0
        scratch.store(scratch.path(path), f"{path}.copy")
    assert len(store.objects[f"{path}.copy".partition("lake/")[2]]) == length
    assert "token" not in repr(opening)


def test_a_stream_of_older_keys_is_opened_again_with_those_of_the_moment(
    vending: Vending, store: Store
) -> None:
    """Another file has renewed the keys, and the catalog hands out no others."""
    path, opening = a_file(vending), opening_of(vending.config, ("loop", "t"))
    body = store.objects[path.partition("lake/")[2]]
    with Scratch(opening) as scratch, scratch.in_parts(path, len(body)) as fetch:
        assert fetch is not None
        fetch(0, 4)
        store.end_all()
        keys = vars(opening.open(path).keys)
        keys["_rests_until"] = 0.0
        assert opening.open(path).new_input(path).exists()  # renews
        keys["_rests_until"] = float("inf")
        fetch(4, len(body) - 4)
        assert scratch.path(path).read_bytes() == body


def test_work_that_begins_gets_keys_that_last(vending: Vending) -> None:
    for seconds, left in ((3600.0, vended.MARGIN_SECONDS), (60.0, 30.0)):
        vending.seconds = seconds
        opening = opening_of(vending.config, ("loop", "t"))
        ends = expires_at(opening.properties)
        assert opening.due is not None and ends is not None
        assert ends - opening.due == pytest.approx(left, abs=left / 2)
        assert pickle.loads(pickle.dumps(opening)) == opening
        assert replace(opening, due=time.time()).is_due()


@pytest.mark.parametrize("said", [60.0, -60.0])
def test_an_attempt_asks_again_once_keys_are_due(vending: Vending, said: float) -> None:
    """Those that live for a short time are good for half of it; those that look expired when they
    come, for as long as the store takes them."""
    vending.said = said
    unused: Any = None
    attempt = Attempt(
        backend=unused, id="a", name="t", table=unused, snapshot_id=1, sequence_number=1,
        prefix="", verify="", asked_opening=lambda: opening_of(vending.config, ("loop", "t")),
    )  # fmt: skip
    asked = vending.asked
    first = attempt.opening()
    assert all(attempt.opening() is first for _ in range(3))
    assert vending.asked - asked == 1
    attempt._known["opening"] = time.monotonic(), replace(first, due=time.time())
    assert attempt.opening().properties["s3.access-key-id"] != first.properties["s3.access-key-id"]
    assert vending.asked - asked == 2


def test_keys_end_wherever_a_run_opens_or_creates_a_file(
    vending: Vending, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process that plans, and in the one that rewrites. Keys say that they live long."""
    table = vending.own.load_table("loop.t")
    before = multiset(table)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(vended, "LEAST_SECONDS", 0.0)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(vending.config, "t", **DECLARED)
    proposal = step.propose(actor)
    store.ends = True
    done = run_step(step, actor, EVERYTHING, quiet, never, proposal)
    store.ends = False
    assert done.state.state == CONVERGED
    assert multiset(table) == before
    assert len(list(table.scan().plan_files())) == 1
    read = {path for operation, path in store.refused if operation == "HEAD"}
    written = {path for operation, path in store.refused if operation == "POST"}
    assert len(read) >= 3, "each input"
    assert {path.rpartition(".")[2] for path in written} >= {"parquet", "avro"}
