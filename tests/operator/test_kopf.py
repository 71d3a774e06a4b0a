"""What the watch layer relies on in kopf beyond its public interface, for the pinned version.

Raise the version in pyproject.toml only after these tests pass with the new one.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import textwrap
import tomllib
from pathlib import Path

from kopf._cogs.clients import fetching, watching
from kopf._core.reactor import observation, running

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "reconciler" / "operator"


def test_one_version_of_kopf_is_declared_locked_and_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["operator"]
    (declared,) = [item for item in extra if item.startswith("kopf")]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^kopf==\S+", lock, re.MULTILINE)
    assert [declared] == locked == [f"kopf=={importlib.metadata.version('kopf')}"]


def test_the_listing_and_the_insights_are_all_private_parts_of_kopf_that_the_operator_uses() -> (
    None
):
    found = {
        (path.name, node.module, alias.name)
        for path in OPERATOR.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kopf.")
        for alias in node.names
    }
    assert found == {
        ("listing.py", "kopf._cogs.clients", "errors"),
        ("listing.py", "kopf._cogs.clients", "fetching"),
        ("listing.py", "kopf._cogs.clients", "watching"),
        ("watch.py", "kopf._cogs.structs.references", "Insights"),
    }


def test_kopf_says_when_it_has_asked_for_the_kinds_and_which_it_watches() -> None:
    source = inspect.getsource(observation.resource_observer)
    asked = source.index("revise_resources(resources=resources, insights=insights")
    assert asked < source.index("insights.ready_resources.set()")
    assert inspect.signature(running.operator).parameters["insights"].default is None


def test_a_listing_yields_chunks_of_objects_with_a_version_and_takes_keywords() -> None:
    assert inspect.isasyncgenfunction(fetching.fetch_objs)
    source = ast.parse(textwrap.dedent(inspect.getsource(fetching)))
    (function,) = [n for n in ast.walk(source) if isinstance(n, ast.AsyncFunctionDef)]
    assert function.name == "fetch_objs"
    assert [item.arg for item in function.args.args] == []
    names = [item.arg for item in function.args.kwonlyargs]
    assert names == ["settings", "resource", "namespace", "logger"]
    yielded = [
        ast.unparse(n.value) for n in ast.walk(function) if isinstance(n, ast.Yield) and n.value
    ]
    assert yielded == ["(items, resource_version)"]


def test_a_watch_looks_the_listing_up_in_its_module_and_takes_chunk_by_chunk() -> None:
    """So that a replaced `fetching.fetch_objs` is used, and no chunk is asked for too early."""
    source = inspect.getsource(watching.continuous_watch)
    assert "async for chunk, resource_version in fetching.fetch_objs(" in source
    assert not hasattr(watching, "fetch_objs")
    assert "watch_objs(" in source and "410" in source


def test_the_warning_about_signals_comes_from_the_logger_that_is_silenced() -> None:
    assert running.logger.name == "kopf._core.reactor.running"
