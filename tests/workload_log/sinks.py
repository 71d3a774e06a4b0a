"""A state store in memory, with the store's rule that the same fragment counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from reconciler.queries.fragments import Fragment


class MemorySink:
    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], Fragment] = {}
        self.cursors: dict[str, str] = {}
        self.skips: Counter[tuple[str | None, str]] = Counter()
        self.commits = 0

    @property
    def fragments(self) -> list[Fragment]:
        return [self.stored[key] for key in sorted(self.stored)]

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        self.commits += 1
        for item in fragments:
            key = (item.source, item.position)
            assert self.stored.get(key, item) == item, "two fragments share a position"
            self.stored[key] = item

    def cursor(self, source: str) -> str | None:
        return self.cursors.get(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.cursors[source] = value

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            self.skips[table_uuid, reason] += count
