"""The first signal asks to stop, a second Ctrl-C insists, and at a question one is enough."""

from __future__ import annotations

import os
import signal

import pytest

from reconciler.spark.session.stop import interruptible, stop_signals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_the_first_signal_asks_and_a_second_ctrl_c_insists() -> None:
    calls: list[str] = []
    with stop_signals(lambda: calls.append("stopping")) as should_stop:
        assert not should_stop()
        send(signal.SIGTERM)
        assert should_stop()
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert calls == ["stopping"]


def test_a_question_ends_with_one_ctrl_c_and_asks_nobody_to_stop_later() -> None:
    with stop_signals() as should_stop:
        with pytest.raises(KeyboardInterrupt), interruptible():
            send(signal.SIGINT)
        assert not should_stop()
        send(signal.SIGINT)
        assert should_stop()


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(), interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is before
