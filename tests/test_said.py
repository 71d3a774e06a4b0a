"""Golden messages: what is masked, and that each belongs to a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.said import WRITING, Said, masked, read

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("golden/test_*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_messages_belong_to_a_test_of_the_module_beside_them(path: Path) -> None:
    module = ast.parse((path.parents[1] / f"{path.stem}.py").read_text(encoding="utf-8"))
    saying = {
        node.name
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and "said" in {arg.arg for arg in node.args.args}
    }
    assert {name.partition("[")[0] for name in read(path)} == saying


def test_what_changes_from_run_to_run_is_masked(tmp_path: Path) -> None:
    text = f"plan p-{'0a' * 10} of 123456789012345678 in {tmp_path.parent}/x0/t 12 \nnext"
    assert masked(text, tmp_path.parent) == "plan <plan> of <snapshot> in <tmp>/t 12\nnext"


@pytest.mark.skipif(WRITING, reason="then every wording is the golden one")
def test_another_wording_is_found(said: Said) -> None:
    said("first")
    with pytest.raises(AssertionError):
        said("another")
