"""JSON and YAML of results, in one place, so that all verbs print them in the same form."""

from __future__ import annotations

import json
from typing import Any

from reconciler.cli.options import Output


def serialise(body: Any, output: Output) -> str:
    """Return the text with its final newline; key order as given."""
    if output is Output.JSON:
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    import yaml

    text: str = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return text
