"""README and docs: their commands exist, their links resolve, and no page stands alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], set[str]]:
    """Every verb (and verb of a group) with the flags that it takes."""
    from typer.main import get_command

    from reconciler.cli.main import build

    return dict(_walk(get_command(build()), ()))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    flags = {
        flag for parameter in command.params for flag in parameter.opts + parameter.secondary_opts
    }
    yield path, flags | {"--help"}
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*path, name))


def invocations(text: str) -> Iterator[list[str]]:
    """Words after `layoutctl` in code blocks and code spans, up to a comment or a pipe."""
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.DOTALL)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`([^`\n]+)`", prose)]:
        found = re.match(r"\s*(?:\$ )?layoutctl\s+(.*)", line)
        if found:
            yield shlex.split(re.split(r" [#|>&] | {3,}", found.group(1))[0], comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_page_exist(page: Path, commands: dict[tuple[str, ...], set[str]]) -> None:
    for words in invocations(page.read_text()):
        if words[0] in ("VERB", "…") or words[0].isupper():
            continue
        path: tuple[str, ...] = ()
        while len(path) < len(words) and (*path, words[len(path)]) in commands:
            path = (*path, words[len(path)])
        said = "layoutctl " + " ".join(words)
        assert path or words[0].startswith("--"), f"{said}: no such verb"
        for word in words[len(path) :]:
            if word.startswith("-") and word != "-":
                flag = word.split("=")[0]
                assert flag in commands[path], f"{said}: {flag} is no flag of {' '.join(path)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name}: {target} does not exist"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert anchor in {_anchor(head) for head in heads}, f"{page.name}: no heading {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_plan_that_a_page_saves_is_that_of_one_table(page: Path) -> None:
    """Policies may select many tables, and a file holds one plan. Code blocks may be indented."""
    text = re.sub(r"^    (?=layoutctl )", "", page.read_text(), flags=re.MULTILINE)
    for line in re.findall(r"^(?:\$ )?layoutctl plan .*--out .*$", text, re.MULTILINE):
        assert re.search(r" plan (-f \S+ )?[a-z]\w*(\.\w+){2} ", line), line


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            if not re.match(r"[a-z]+:", target):
                waiting.append((page.parent / target).resolve())
    assert set(PAGES) - reached == set()


def test_the_check_itself_notices_what_is_wrong() -> None:
    text = "```\n$ layoutctl plan a.b --out x.json   # saved\n```\nand `layoutctl nosuch`"
    assert list(invocations(text)) == [["plan", "a.b", "--out", "x.json"], ["nosuch"]]


def test_every_reason_is_documented() -> None:
    from reconciler.plan import reasons

    page = (ROOT / "docs/concepts/why-a-file-is-rewritten.md").read_text()
    assert [reason for reason in reasons.SENTENCES if f"`{reason}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_exist(page: Path) -> None:
    """`::test_name` alone is a test of the file that was named last."""
    module = ""
    for file, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", page.read_text()):
        module = (ROOT / file).read_text() if file else module
        assert not name or f"def {name}(" in module, f"{page.name}: {file}::{name} does not exist"
