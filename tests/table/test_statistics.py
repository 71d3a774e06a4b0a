"""Which statistics files stay true, and under which snapshot readers find them."""

from __future__ import annotations

from reconciler.table.statistics import Ancestor, lost_by_expiry, true_of_head, under

FILE = {"snapshot-id": 1, "statistics-path": "a"}
OTHER = {"snapshot-id": 2, "statistics-path": "b"}


def line(text: str) -> list[Ancestor]:
    """ "5= 4+ 1": newest first; = keeps the rows of its parent."""
    return [Ancestor(int(one[0]), one.endswith("=")) for one in text.split()]


def test_statistics_stay_true_while_rows_only_move() -> None:
    assert true_of_head(line("3= 2= 1"), {1: FILE}) == FILE
    assert true_of_head(line("3= 2 1"), {1: FILE}) is None
    assert true_of_head(line("3 2= 1"), {1: FILE}) is None
    assert true_of_head(line("3= 2= 1"), {1: FILE, 2: OTHER}) == OTHER


def test_the_heads_own_statistics_stay_as_they_are() -> None:
    assert true_of_head(line("3= 2= 1"), {1: FILE, 3: OTHER}) is None
    assert true_of_head([], {1: FILE}) is None


def test_an_expiry_moves_the_newest_statistics_to_the_next_snapshot_that_stays() -> None:
    assert lost_by_expiry(line("5 4 3 2 1"), {1, 2}, {1: FILE, 2: OTHER}) == (3, OTHER)
    assert lost_by_expiry(line("5 4 3 2 1"), {1, 3}, {1: FILE}) == (2, FILE)


def test_an_expiry_moves_nothing_where_newer_statistics_stay() -> None:
    assert lost_by_expiry(line("5 4 3 2 1"), {1, 2}, {2: FILE, 4: OTHER}) is None
    assert lost_by_expiry(line("5 4 3 2 1"), {1}, {2: FILE, 1: OTHER}) is None
    assert lost_by_expiry(line("5 4 3"), {3}, {}) is None
    assert lost_by_expiry(line("3 2 1"), {1, 2, 3}, {1: FILE}) is None


def test_what_a_file_holds_still_names_the_snapshot_that_it_was_computed_from() -> None:
    blob = {"type": "t", "snapshot-id": 1, "fields": [1]}
    found = under({**FILE, "blob-metadata": [blob]}, 9)
    assert found == {"snapshot-id": 9, "statistics-path": "a", "blob-metadata": [blob]}
