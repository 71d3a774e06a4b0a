"""Names of the objects that the operator creates: a function of what they represent, nothing else.

Two operators, or one before and after a restart, compute the same name, so that the API server
itself refuses a second object for the same thing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence

SLUG_LENGTH = 40
HASH_LENGTH = 10
PLAN_DIGITS = 12
RECOMMENDATION = "r-"
"""Beginning of the id that a recommend job has instead of a plan's."""


def table_layout_name(catalog_ref: str, levels: Sequence[str]) -> str:
    """Return the name of the TableLayout of a table. levels: namespace levels, then the table's
    name.

    A readable slug and a hash over the separate levels, so that ("a.b", "c") and ("a", "b.c"), or
    names that differ only in case, are two objects. Always a DNS-1123 subdomain.
    """
    *namespace, table = levels
    body = json.dumps([catalog_ref, namespace, table], ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()
    suffix = base64.b32encode(digest).decode().lower()[:HASH_LENGTH]
    return f"{_slug('.'.join(levels))}-{suffix}"


def _slug(text: str) -> str:
    """Return at most 40 characters of a-z, 0-9, - and ., no part of it empty or with - at its
    ends."""
    plain = re.sub(r"[^a-z0-9.]+", "-", text.lower())[:SLUG_LENGTH]
    parts = [part.strip("-") for part in plain.split(".")]
    return ".".join(part for part in parts if part) or "table"


def recommendation_id(*inputs: object) -> str:
    """Return `r-` and 20 hex digits over what a recommendation is made from."""
    text = "\x00".join(str(item) for item in inputs)
    return f"{RECOMMENDATION}{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def job_name(layout_name: str, plan_id: str, attempt: int) -> str:
    """Return the name of the Job of one attempt: `tl-<hash>-<12 digits of the plan>-<attempt>`, for
    a recommendation with `r-` and ten digits."""
    suffix = layout_name[-HASH_LENGTH:]
    return f"tl-{suffix}-{plan_id.removeprefix('p-')[:PLAN_DIGITS]}-{attempt}"
