"""The policy of a table without a document: all defaults, so that `plan TABLE` works at once."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.api.document_codec import from_document
from reconciler.api.documents import Origin, TableLayoutPolicy
from reconciler.api.schema import POLICY
from reconciler.api.table_patterns import quote_identifier
from reconciler.api.version import API_VERSION

BUILT_IN = "built-in"


def builtin_policy(table: Iterable[str], catalog: str) -> TableLayoutPolicy:
    """Return the built-in policy: workload-aware, Manual approval, no budget. table: its levels."""
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
