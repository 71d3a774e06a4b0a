"""A state store in memory, with the store's rule that the same fragment counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from reconciler.queries.fragments import Fragment
from reconciler.workload_log.identity import Keys


class MemorySink:
    def __init__(self) -> None:
        self.stored: dict[tuple[str, str, int], Fragment] = {}
        self.cursors: dict[str, str] = {}
        self.skips: Counter[tuple[str | None, str]] = Counter()
        self.commits = 0

    @property
    def fragments(self) -> list[Fragment]:
        """By time, then in the order of their import."""
        return sorted(self.stored.values(), key=lambda item: item.event_ms)

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        self.commits += 1
        for item in fragments:
            self.stored.setdefault((item.table_uuid, item.source, item.position), item)

    def recorded_positions(self) -> Keys:
        return np.sort(np.array([item.position for item in self.stored.values()], dtype=np.int64))

    def cursor(self, source: str) -> str | None:
        return self.cursors.get(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.cursors[source] = value

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            self.skips[table_uuid, reason] += count
