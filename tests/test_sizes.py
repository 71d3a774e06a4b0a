"""A file of the package has at most 450 lines, so that a reader can hold it."""

from __future__ import annotations

from tests.test_docs import ROOT

MOST_LINES = 450
LARGER = {
    "advisor/advice.py": "the values that a decision takes and gives, each field explained",
    "api/documents.py": "the values of the documents, each field explained",
}
"""Files that are larger, by the reason. An entry goes when its file is split."""


def test_files_have_at_most_450_lines() -> None:
    package = ROOT / "reconciler"
    larger = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.read_text(encoding="utf-8").count("\n") > MOST_LINES
    }
    assert larger == LARGER.keys()
