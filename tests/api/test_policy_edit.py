"""Edits of policies touch only the changed fields, or nothing."""

from __future__ import annotations

import difflib
import json

import pytest
import yaml

from reconciler.api.policy_edit import CannotEditError, block, edited

KEYS = ("spec", "layout", "clustering", "keys")
MODE = ("spec", "layout", "clustering", "mode")
TARGET = ("spec", "layout", "files", "targetSize")
CHANGES = {MODE: "Declared", KEYS: ["day", "y"], TARGET: "64Mi"}

BLOCK = """\
# head
kind: A
spec:
   layout:          # three spaces
      clustering:
         mode: None   # why
         keys:
           - a
           - b
   suspend: false
---
spec: {layout: {clustering: {mode: "None"}, files: {rowGroupSize: 1Mi}}}   # flow
---
spec:
  tables: {include: [x]}
"""


@pytest.mark.parametrize("document", [0, 1, 2])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_values_change_and_nothing_else(document, newline):
    text = BLOCK.replace("\n", newline)
    after = edited(text, document, CHANGES)
    values = list(yaml.safe_load_all(after))
    layout = values[document]["spec"]["layout"]
    assert layout["clustering"] == {"mode": "Declared", "keys": ["day", "y"]}
    assert layout["files"]["targetSize"] == "64Mi"
    before = list(yaml.safe_load_all(text))
    assert [v for i, v in enumerate(values) if i != document] == [
        v for i, v in enumerate(before) if i != document
    ]
    assert after.count("\r\n") == (after.count("\n") if newline == "\r\n" else 0)
    gone = [
        line[2:]
        for line in difflib.ndiff(text.splitlines(), after.splitlines())
        if line.startswith("- ")
    ]
    assert all(any(word in line for word in ("mode", "keys", "- a", "- b")) for line in gone)


def test_a_field_is_removed_with_its_lines():
    after = edited(BLOCK, 0, {KEYS: None})
    assert "- a" not in after and "# why" in after
    assert edited(BLOCK, 1, {("spec", "layout", "files", "rowGroupSize"): "2Mi"}).count("2Mi") == 1


def test_what_is_as_wanted_already_changes_no_byte():
    assert edited(BLOCK, 0, {MODE: "None", KEYS: ["a", "b"]}) == BLOCK


def test_a_file_with_aliases_is_not_edited():
    text = "a: &x {mode: None}\nspec: {layout: {clustering: *x}}\n"
    with pytest.raises(CannotEditError):
        edited(text, 0, {MODE: "Declared"})


def test_the_fields_print_for_a_merge_by_hand():
    assert yaml.safe_load(block(CHANGES))["spec"]["layout"]["clustering"]["keys"] == ["day", "y"]


def test_a_file_of_json_stays_json():
    text = (
        '{"kind": "A",\n "spec": {"layout": {"clustering": {"mode": "None"}}, "suspend": true}}\n'
    )
    found = json.loads(edited(text, 0, CHANGES))["spec"]
    assert found["layout"]["clustering"] == {"mode": "Declared", "keys": ["day", "y"]}
    assert found["layout"]["files"] == {"targetSize": "64Mi"} and found["suspend"] is True
    assert json.loads(edited('{"kind": "A", "spec": {}}', 0, CHANGES))["spec"] == {
        "layout": found["layout"]
    }
