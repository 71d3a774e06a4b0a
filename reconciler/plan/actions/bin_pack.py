"""Small files merged into larger ones; their rows stay in order of arrival or of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reconciler.plan.actions.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class BinPack(Rewrite):
    kind: ClassVar[str] = "BinPack"
    verb: ClassVar[str] = "bin-pack"
    work: ClassVar[str | None] = "pack"
    by: ClassVar[str] = " in order of "
    least_inputs: ClassVar[int] = 2
