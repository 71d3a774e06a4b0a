"""layoutctl in this process, apart from the configuration of whoever runs the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from reconciler.cli import main as cli_main

Cli = Callable[..., tuple[int, str, str]]
"""Arguments of layoutctl -> (exit code, stdout, stderr)."""


@cache
def commands() -> Any:
    """The parsed commands of layoutctl, which take a second of CPU in each ten calls to build."""
    return typer.main.get_command(cli_main.build())


def isolate(
    monkeypatch: pytest.MonkeyPatch, directory: Path, home: Path, state: Path, cache: Path
) -> None:
    """Set the variables that layoutctl reads, remove the others, and work in the directory.

    home: where pyiceberg's own configuration is looked for."""
    for name in list(os.environ):
        if name.startswith(("PYICEBERG_", "LAYOUTCTL_", "SPARK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    monkeypatch.setenv("LAYOUTCTL_STATE", str(state))
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(directory)


def runner(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Cli:
    """Return a function that runs layoutctl; it fails on a traceback."""
    app = commands()
    monkeypatch.setattr(cli_main, "build", lambda asked="": app)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["layoutctl", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli_main.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(ended.value.code or 0), printed.out, printed.err

    return run
