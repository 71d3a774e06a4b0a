"""The body of a server-side apply is YAML, whatever characters it holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.source import parse_yaml
from reconciler.kube.answers import APPLY, encoded
from tests.examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


# A key of YAML ends within 1,024 characters; these may take twelve each.
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), TEXT,
                       max_size=3))  # fmt: skip
@settings(max_examples=examples(200), deadline=None)
def test_what_is_applied_is_read_whatever_its_characters(plain: dict[str, str]) -> None:
    """JSON's escapes are not all YAML's: two for one character, and DEL as it is."""
    plain = {**plain, "ice": "\U0001f9ca", "backslash": "\\ud83e\\uddca", "del": "\x7f"}
    (document,), error = parse_yaml(encoded(plain, APPLY).decode(), "f")
    assert error is None and document.value == plain
