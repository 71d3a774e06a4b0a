"""Reads the corpus: each file with what its head expects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Case:
    path: Path
    expected: tuple[str, ...]
    server: str
    server_fields: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def cases(folder: str) -> list[Case]:
    return [_case(path) for path in sorted((ROOT / folder).glob("*.yaml"))]


def _case(path: Path) -> Case:
    text = path.read_text(encoding="utf-8")
    expected = tuple(re.findall(r"^# expect: (.*)$", text, flags=re.MULTILINE))
    server = re.search(r"^# server: (\w+)$", text, flags=re.MULTILINE)
    fields = tuple(re.findall(r"^# server field: (.*)$", text, flags=re.MULTILINE))
    return Case(path, expected, server[1] if server else "accepts", fields)
