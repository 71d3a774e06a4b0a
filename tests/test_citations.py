"""What docs, docstrings and comments cite exists: documents, modules, and names in them.

A citation is a path of a document (docs/design/map.md#an-anchor), a path below the project or the
package in backticks (`engines/commit/fence`), or a dotted name (`plan.grouping`, loop.step.Step)
that begins with a package or a module of ours.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from reconciler.operator.job_record import Phase
from tests.sources import PACKAGE, nodes, texts
from tests.test_docs import PAGES, ROOT, _anchor

FOLDERS = ("reconciler", "bench", "tests", "charts")
GENERATED = {ROOT / "docs/reference/policy.md", ROOT / "docs/operations/conditions.md"}
IN_DOCUMENTS = {"status", "spec", "evidence", "metadata", "metrics", "values", "TableLayout",
                "read.predicted", "read.complete", "deletes.compaction",
                "watch.namespaces"}  # fmt: skip
"""Names, or first parts of names, of places in documents, although ours have such names too."""
EXAMPLES = {"catalog.namespace.name", "schema.table.column", "catalog.example.com",
            "raise_error", "add_files",
            "Cluster.environment", "Cluster.stop_api_server", "Cluster.paused"}  # fmt: skip
"""Names of nothing of ours: tables, hosts, functions of SQL, and fixtures of the tests."""

DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?")
ELSEWHERE = re.compile(r"\bdefinitions?: |\bdesign: |\bdesign section\b|\(design \d")
"""Citations of documents without a path."""
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[a-z_]+(?:/\w+)+/?(?:\.py)?|\w+\.(?:py|sh)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\(\))?")
BARE = re.compile(r"(?<![\w./\"'`-])[a-z_]+(?:\.[A-Za-z_]\w*)+(?![\w/`\"'(-])")


@cache
def modules() -> dict[str, frozenset[str]]:
    """The names that each module of the package defines, methods and fields included."""
    found = {}
    for path, every in nodes().items():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names = set()
        for node in every:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)):
                if isinstance(node.ctx, ast.Store):
                    names.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names |= {alias.asname or alias.name for alias in node.names}
        found[".".join(part for part in parts if part != "__init__")] = frozenset(names)
    return found


@cache
def file_names() -> frozenset[str]:
    """The names of all files of the project; FOLDERS, and docs with their scripts."""
    return frozenset(
        path.name for folder in (*FOLDERS, "docs") for path in (ROOT / folder).rglob("*.*")
    )


@cache
def packages() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in modules() if "." in name)


@cache
def literals() -> str:
    """All source texts: names of properties occur there in quotes."""
    return "\n".join(texts().values())


@cache
def beginnings() -> frozenset[str]:
    """The packages, modules and classes of ours."""
    last = {module.rpartition(".")[2] for module in modules()}
    classes = {one for names in modules().values() for one in names if one[:1].isupper()}
    return packages() | last | classes


@cache
def is_ours(name: str) -> bool:
    """Whether a dotted name begins with a package, a module or a class of ours."""
    first = name.partition(".")[0]
    if (
        name in EXAMPLES
        or {name, first} & IN_DOCUMENTS
        or re.search(r"\b[a-z]+[A-Z]", name)
        or f'"{name}' in literals()
    ):
        return False
    return first in beginnings()


@cache
def resolves(name: str) -> bool:
    parts = name.removesuffix("()").removeprefix("reconciler.").split(".")
    for size in range(len(parts), -1, -1):
        head, rest = ".".join(parts[:size]), parts[size:]
        for module, names in modules().items():
            whole = not head or module == head or module.endswith(f".{head}")
            if whole and (size or parts[0][:1].isupper()) and all(one in names for one in rest):
                return True
    if parts[0] in sys.stdlib_module_names and parts[0] not in packages():
        return hasattr(importlib.import_module(parts[0]), parts[1])
    return False


def is_path_of_ours(path: str) -> bool:
    first = path.partition("/")[0]
    return first in packages() or first in FOLDERS or "/" not in path


def exists(path: str, page: Path) -> bool:
    bare = path.strip("/")
    places = [base / bare for base in (ROOT, PACKAGE, ROOT / "tests", page.parent)]
    if any(place.exists() or place.with_suffix(".py").exists() for place in places):
        return True
    if "/" not in bare:
        return bare in file_names()
    return any(module.endswith(bare.removesuffix(".py").replace("/", ".")) for module in modules())


def is_document(name: str) -> bool:
    path, _, anchor = name.partition("#")
    page = ROOT / path
    if not page.exists():
        return False
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return not anchor or anchor in {_anchor(head) for head in heads}


def broken(text: str, page: Path, *, prose: bool) -> Iterator[str]:
    """The citations in a text that do not resolve. prose: of code, in which names of modules need
    no backticks and documents are cited by their path."""
    quoted = QUOTED.findall(text)
    for name in quoted:
        if PATH.fullmatch(name):
            if is_path_of_ours(name) and not exists(name, page):
                yield name
        elif DOTTED.fullmatch(name) and is_ours(name) and not resolves(name):
            yield name
    if prose:
        yield from (name for name in DOCUMENT.findall(text) if not is_document(name))
        yield from (found.group() for found in ELSEWHERE.finditer(text))
        rest = QUOTED.sub("", text)
        for name in BARE.findall(rest):
            if name.partition(".")[0] in packages() and is_ours(name) and not resolves(name):
                yield name


def prose_of(every: Iterable[ast.AST], source: str) -> Iterator[str]:
    """The docstrings, the texts under fields and constants, and the comments."""
    for node in every:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    yield from re.findall(r"(?m)^\s*#(.*)$", source)


def test_what_pages_cite_exists() -> None:
    found = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        if page not in GENERATED
        for name in broken(page.read_text(encoding="utf-8"), page, prose=False)
    }
    assert found == set()


def test_what_docstrings_and_comments_cite_exists() -> None:
    found = set()
    benches = [(path, path.read_text(encoding="utf-8")) for path in (ROOT / "bench").rglob("*.py")]
    read = [(path, list(ast.walk(ast.parse(source))), source) for path, source in benches]
    read += [(path, every, texts()[path]) for path, every in nodes().items()]
    for path, every, source in read:
        for text in prose_of(every, source):
            names = broken(text, path, prose=True)
            found |= {f"{path.relative_to(ROOT)}: {name}" for name in names}
    assert found == set()


def test_phases_of_a_job_are_those_that_the_operator_writes() -> None:

    text = (ROOT / "crds/tablelayouts.yaml").read_text(encoding="utf-8")
    (phases,) = re.findall(r"\n +phase: .*description: '(.+)\.'", text)
    assert set(re.split(r", | or ", phases)) == {phase.value for phase in Phase}


def test_modules_that_docstrings_name_by_one_word_exist() -> None:
    """`row_filter` for a module beside this one: it has to occur in the code as well."""
    words = frozenset(re.findall(r"\w+_\w+", QUOTED.sub("", literals())))
    known = words.union(
        *modules().values(), EXAMPLES, (part for name in modules() for part in name.split("."))
    )
    found = set()
    for path, every in nodes().items():
        for text in prose_of(every, texts()[path]):
            names = set(re.findall(r"`(_?[a-z]+_\w+)(?:\(\))?`", text)) - known
            found |= {f"{path.relative_to(ROOT)}: {name}" for name in names}
    assert found == set()


def test_broken_citations_are_found() -> None:
    text = (
        "`spark/commit/fenced`, `plan.grouping.nothing` and plan.nowhere, docs/design/none.md, "
        "docs/design/map.md#none, definitions: Plan; but `engines/commit/fence`, `plan.grouping`, "
        "plan.grouping.Extents, `Prediction.document`, `write.wap.enabled` and docs/design/map.md"
    )
    assert list(broken(text, ROOT / "README.md", prose=True)) == [
        "spark/commit/fenced", "plan.grouping.nothing", "docs/design/none.md",
        "docs/design/map.md#none", "definitions: ", "plan.nowhere",
    ]  # fmt: skip
