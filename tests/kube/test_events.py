"""Events: news at once, repeats counted and patched now and then, memory bounded."""

from __future__ import annotations

from reconciler.kube.events import KEPT, PATCH_SECONDS, SERIES_SECONDS, EventLog

OBJECT = {
    "apiVersion": "v1",
    "kind": "X",
    "metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
}


def test_a_repeat_is_silent_then_patched_with_its_count_then_news_again():
    now = [1_000_000.0]
    events = EventLog(clock=lambda: now[0])
    first = events.record(OBJECT, "Reason", "text", "Normal")
    assert not first.patch
    assert first.body["note"] == "text"
    for _ in range(3):
        now[0] += 1
        assert events.record(OBJECT, "Reason", "text", "Normal") is None
    now[0] += PATCH_SECONDS
    repeat = events.record(OBJECT, "Reason", "text", "Normal")
    assert repeat.patch
    assert repeat.name == first.name
    assert repeat.body["series"]["count"] == 5
    now[0] += SERIES_SECONDS + 1
    assert not events.record(OBJECT, "Reason", "text", "Normal").patch


def test_another_message_or_object_is_news():
    events = EventLog(clock=lambda: 0.0)
    assert events.record(OBJECT, "Reason", "text", "Normal")
    assert events.record(OBJECT, "Reason", "other", "Normal")
    other = {**OBJECT, "metadata": {**OBJECT["metadata"], "uid": "v"}}
    assert events.record(other, "Reason", "text", "Normal")


def test_what_could_not_be_written_is_written_again():
    events = EventLog(clock=lambda: 0.0)
    events.forget(events.record(OBJECT, "Reason", "text", "Normal"))
    assert not events.record(OBJECT, "Reason", "text", "Normal").patch


def test_memory_is_bounded():
    events = EventLog(clock=lambda: 0.0)
    for number in range(KEPT + 10):
        events.record(OBJECT, "Reason", str(number), "Normal")
    assert len(events._known) == KEPT
