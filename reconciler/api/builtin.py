"""The policy of a table without a document, so that `plan TABLE` works at once: all defaults."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.api.documents import Origin, TableLayoutPolicy, from_document
from reconciler.api.schema import POLICY
from reconciler.api.table_patterns import quote_identifier
from reconciler.api.version import API_VERSION

BUILT_IN = "built-in"


def builtin_policy(table: Iterable[str], catalog: str) -> TableLayoutPolicy:
    """Workload-aware, Manual approval, no budget. table: its levels, the name last."""
    document = from_document(
        {
            "apiVersion": API_VERSION,
            "kind": POLICY,
            "metadata": {"name": BUILT_IN},
            "spec": {
                "catalogRef": {"name": catalog},
                "tables": {"include": [quote_identifier(table)]},
            },
        },
        Origin(),
    )
    assert isinstance(document, TableLayoutPolicy)
    return document
