"""`layoutctl`: parses, calls, renders. Each verb is in a module of its own with `register(app)`.

Modules of verbs import nothing heavy at module level, so that `--help` is fast; errors for people
end here, as one message and a documented exit code, never as a traceback.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USER,
    ReconcilerError,
)
from reconciler.render.terminal import harmless_output

if TYPE_CHECKING:
    import typer

VERBS = (
    "catalogs",
    "observe",
    "top",
    "workload",
    "status",
    "history",
    "explain",
    "route",
    "report",
    "init",
    "validate",
    "recommend",
    "replay",
    "plan",
    "apply",
    "undo",
    "approve",
    "review",
    "suspend",
    "cancel",
    "demo",
    "schema_verb",
    "version",
    "operator",
    "job",
)
"""Modules in the order of the help: Look, Decide, Act, Run."""

GARBAGE_AFTER = 500_000
"""Objects made between two searches for unreachable ones. Importing makes 250,000 that stay, and by
Python's own number of 700 they are searched again and again. The operator has its own number."""


def build(asked: str = "") -> typer.Typer:
    """Return the program with all verbs, or with the one that is asked for: the others would only
    be imported."""
    import typer

    app = typer.Typer(
        name="layoutctl",
        help="Plan, apply and maintain the physical layout of Apache Iceberg tables.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)  # without it, a program of one verb would take no verb's name
    for verb in (asked,) if asked in VERBS else VERBS:
        importlib.import_module(f"reconciler.cli.{verb}").register(app)
    return app


def _program() -> None:
    pass


def main() -> None:
    """The console script. Ends the process with one of the documented exit codes."""
    gc.set_threshold(GARBAGE_AFTER)
    # rich colours the help, and it has our words alone
    helped = sys.argv[1:] in ([], ["workload"]) or "--help" in sys.argv
    with nullcontext() if helped else harmless_output():
        code = _ran()
    gc.freeze()  # else Python searches all modules for garbage as it ends: a fifth of a short run
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _ran() -> Any:
    """Carry the command out, and return the code to end with."""
    import typer

    unread = _is_unread()
    try:
        code = build(sys.argv[1] if len(sys.argv) > 1 else "")(standalone_mode=False)
    except ReconcilerError as error:
        _say(error.render())
        code = error.exit_code
    except typer.Exit as exit_:
        code = exit_.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # A pipe's reader that ended is not an error, and Python's own exit must not report one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_OK
    except SystemExit as ended:
        code = EXIT_OK if _reader_went_away() and not unread else ended.code
    except Exception as error:
        code = _unexpected(error)
    return code


def _unexpected(error: Exception) -> int:
    if isinstance(error, _usage_errors()):
        context = getattr(error, "ctx", None)
        _say(f"error: {error.format_message()}")
        if context is not None:
            _say(f"  do: {context.command_path} --help")
        return EXIT_USER
    if "LAYOUTCTL_TRACEBACK" in os.environ:
        raise error
    _say(f"error: internal: {type(error).__name__}: {error}")
    _say("  This is a bug in layoutctl; your table is not the cause.")
    _say("  do: run it again with LAYOUTCTL_TRACEBACK=1 and report what it prints")
    return EXIT_INTERNAL


def _reader_went_away() -> bool:
    """Whether rich or click ended the process because the pipe for the help is closed.

    rich redirects stdout to the null device, click leaves a wrapper of a private type behind.
    """
    if "PacifyFlush" in type(sys.stdout).__name__:
        return True
    return _is_unread()


def _is_unread() -> bool:
    """Whether stdout is closed, or the null device."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), Path(os.devnull).stat())
    except (AttributeError, OSError):
        return True


def _usage_errors() -> tuple[type[Any], ...]:
    """Return typer's usage errors, which moved between releases; all derive from this one."""
    from typer.exceptions import TyperException

    return (TyperException,)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
