"""The fixture `said`: messages are what the golden file of their test module says.

A test asserts codes, reasons and numbers, and hands the wording to `said`. It stands in
golden/<module>.yaml beside the module, by test and in order. Golden files are rewritten by: make
golden
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

WRITING = os.environ.get("LAYOUTCTL_GOLDEN") == "write"
"""Read once, because tests remove variables from the environment."""

Said = Callable[[object], None]

_CHANGING = (
    (r"\bp-[0-9a-f]{20}\b", "<plan>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\b[0-9a-f]{64}\b", "<digest>"),
    (r"\b\d{15,}\b", "<snapshot>"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "<time>"),
    (r"(127\.0\.0\.1|localhost):\d{4,5}\b", r"\1:<port>"),
    (r"\bat 0x[0-9a-f]+", "at <address>"),
)
"""What differs from run to run, and what stands for it."""


@pytest.fixture
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Said]:
    """`said(error)` or `said(printed)`: its text is the next one of this test's golden texts."""
    path = golden_file(request.node.path)
    expected = read(path).get(request.node.name, [])
    found: list[str] = []

    def check(message: object) -> None:
        text = masked(str(message), tmp_path_factory.getbasetemp())
        found.append(text)
        if not WRITING:
            assert [text] == expected[len(found) - 1 : len(found)]

    yield check
    if WRITING:
        write(path, {**read(path), request.node.name: found})


def masked(text: str, directory: Path) -> str:
    """The text without trailing white space and without what changes from run to run."""
    text = re.sub(rf"{re.escape(str(directory))}/[^/\s'\"]+", "<tmp>", text)
    for pattern, replacement in _CHANGING:
        text = re.sub(pattern, replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def golden_file(module: Path) -> Path:
    return module.parent / "golden" / f"{module.stem}.yaml"


def read(path: Path) -> dict[str, list[str]]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path: Path, texts: dict[str, list[str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    body = yaml.dump(
        texts, Dumper=_Dumper, allow_unicode=True, width=1000, default_flow_style=False
    )
    path.write_text(body, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are written line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
