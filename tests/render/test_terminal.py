"""Nothing that is printed commands the terminal, whoever wrote it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.render import terminal
from reconciler.render.terminal import Shown, harmless_output, progress

HOSTILE = "a\x1b[2J\x1b]0;own\x07\rb\x9b31m\u202etxt\x7f\x00"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_command_no_terminal() -> None:
    shown = Shown(Terminal())
    shown.write(f"é\t{HOSTILE}\n")
    shown.writelines([HOSTILE, "█ 木\n"])
    text = shown.plain.getvalue()  # type: ignore[attr-defined]
    assert "é\t" in text and "█ 木\n" in text and text.count("\n") == 2
    assert not set(text) & set("\x1b\x07\r\x9b\u202e\x7f\x00")


def test_a_document_in_a_pipe_stays_as_it_is() -> None:
    shown, document = Shown(io.StringIO()), json.dumps([HOSTILE], ensure_ascii=False)
    shown.write(document)
    assert shown.plain.getvalue() == document  # type: ignore[attr-defined]
    shown.write(HOSTILE)
    assert "\x1b" not in shown.plain.getvalue()  # type: ignore[attr-defined]


def test_progress_of_a_hostile_table_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with harmless_output():
        progress(HOSTILE, quiet=False)
    assert sys.stderr == terminal
    start, _, rest = terminal.getvalue().partition("\x1b[K")
    assert start == "\r" and rest.startswith("a") and "\x1b" not in rest and "\r" not in rest


def test_help_keeps_its_colours_on_a_terminal() -> None:
    main, ours = pty.openpty()
    program = "from reconciler.cli.main import main; main()"
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(Path.cwd())}
    subprocess.run(
        [sys.executable, "-c", program, "workload"], stdout=ours, env=environment, check=False
    )
    os.close(ours)
    printed = b""
    with contextlib.suppress(OSError):  # Linux ends what a terminal without users says so
        while piece := os.read(main, 65_536):
            printed += piece
    os.close(main)
    assert b"\x1b[" in printed and "\ufffd".encode() not in printed


def test_no_next_command_prints_no_line() -> None:
    assert terminal.commands([], 80) == []
