"""The commented policy that `layoutctl init TABLE` writes: a starting point that is already
valid."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from reconciler.api.schema import POLICY
from reconciler.api.table_patterns import quote_identifier
from reconciler.api.version import API_VERSION

SCHEMA_FILE = "tablelayoutpolicy.schema.json"

_TEMPLATE = """\
# yaml-language-server: $schema={schema}
# Editors complete and check this file once the schema lies beside it:
#   layoutctl schema {kind} > {schema}
apiVersion: {version}
kind: {kind}
metadata:
  name: {name}
spec:
  catalogRef: {{name: {catalog}}}
  tables:
    # Names or patterns without the catalog's name: * stays in a level, ** crosses levels.
    include: [{table}]
  layout:
    clustering:
      mode: WorkloadAware         # or Declared with keys: [column, ...], or None
    files:
      targetSize: Auto            # or a size, as 512Mi
  # objectives:                   # goals of the layout; without them, what pays is done
  #   maxScanAmplification: "1.5" # bytes read over bytes needed, by the recorded queries
  #   maxSmallFilePercent: 10
  # deletes: {{compaction: Auto}}   # or Minor, Major, Hybrid, Disabled
  # maintenance:                  # housekeeping; what is not named here is not done
  #   expireSnapshots: {{olderThan: 120h, retainLast: 20}}
  #   rewriteManifests: Auto
  # budgets:                      # how much may be rewritten
  # - {{name: daily, per: 24h, maxRewriteBytes: 500Gi}}
  approval:
    mode: Manual                  # a person approves each plan; Automatic needs a budget
"""


def policy_template(table: Iterable[str] | str, catalog: str) -> str:
    """Return a minimal policy for one table, given as its levels or as a pattern, in YAML.

    catalog: name of the IcebergCatalog or, if there is none, the catalog's own.
    """
    pattern = table if isinstance(table, str) else quote_identifier(table)
    return _TEMPLATE.format(
        schema=SCHEMA_FILE,
        kind=POLICY,
        version=API_VERSION,
        name=object_name(pattern),
        catalog=_scalar(catalog),
        table=json.dumps(pattern, ensure_ascii=False),
    )


def object_name(text: str) -> str:
    """Return a name that Kubernetes accepts: readable and, if characters had to be dropped, still
    unique."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-")
    plain = text.lower().replace(".", "-").replace("_", "-")
    if slug == plain and slug:
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{slug}-{digest}" if slug else f"table-{digest}"


def _scalar(name: str) -> str:
    """Return the name, quoted if YAML could read anything but text."""
    safe = re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+", name) and name.lower() not in _WORDS
    return name if safe else json.dumps(name, ensure_ascii=False)


_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null"})
