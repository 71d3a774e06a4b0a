"""Hidden `layoutctl operator`: the process that a Deployment runs, configured by its
environment."""

from __future__ import annotations

import gc
import inspect
import logging
import os
from typing import Annotated, Any

import typer

GARBAGE_AFTER = 50_000
"""Objects made between two searches for unreachable ones: they must not pile up in a process that
lives for months."""


def register(app: typer.Typer) -> None:
    def operator(**flags: str | None) -> None:
        """Run the Kubernetes operator in this process until SIGTERM."""
        from reconciler.operator import logs
        from reconciler.operator.process import ambient
        from reconciler.operator.process.main import run
        from reconciler.operator.process.reconcilers import build
        from reconciler.operator.settings import from_environment

        settings = from_environment(os.environ, flags)
        logs.configure(settings.log_level)
        if not settings.ambient_credentials:
            withheld = ambient.withhold(os.environ)
            if withheld:
                logging.getLogger(__name__).warning(
                    "ambient credentials are not used: %s", ", ".join(withheld)
                )
        gc.freeze()  # what is imported stays
        gc.set_threshold(GARBAGE_AFTER)
        if not run(settings, build):
            # A reconcile that hangs in a foreign call must not keep the process alive.
            os._exit(0)

    _take_options(operator)
    app.command(hidden=True)(operator)


def _take_options(function: Any) -> None:
    """Add one flag for each setting, so that there is one list of them."""
    from reconciler.operator.settings import OPTIONS

    parameters, annotations = [], {}
    for option in OPTIONS:
        help_ = f"{option.help} [{option.variable}]"
        kind = Annotated[str | None, typer.Option(option.flag, help=help_, show_default=False)]
        annotations[option.name] = kind
        parameters.append(
            inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
            )
        )
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = annotations
