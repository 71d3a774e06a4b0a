"""Last words: one JSON line that fits the termination log and reads back as it was."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.kube.termination_message import MOST_BYTES, Cause, LastWords, read_last_words

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.sampled_from(Cause), texts, texts)
@example(Cause.OUT_OF_MEMORY, "", "\x85")
@example(Cause.UNKNOWN, "a\u2028b\nc\r", "\x1e")
def test_what_was_said_is_read(cause: Cause, message: str, do: str) -> None:
    said = LastWords(cause, message, do)
    assert read_last_words(said.line() + "\n") == said
    assert json.loads(said.line())["retry"] == said.retry


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_long_message_is_cut_and_stays_json(part: str) -> None:
    line = LastWords(Cause.UNKNOWN, part * 5_000, part * 5_000).line()
    assert len(line.encode()) <= MOST_BYTES
    assert json.loads(line)["message"].endswith("…")


def test_other_texts_are_not_last_words() -> None:
    for text in ("", "Killed", "[]", '{"commits": 3}', '{"cause": "Sunspots", "message": "x"}'):
        assert read_last_words(text) is None


def test_a_message_that_is_nested_too_deeply_is_not_ours() -> None:
    assert read_last_words('{"cause":' + "[" * 200_000) is None
