"""Loads documents from files and directories: finds, parses and checks them against each other.

`load` is what every verb uses; it raises with all problems at once. `read` also returns warnings
and counts, for `validate`. A directory may hold other people's documents too: only those of our
group are read, and a foreign Deployment, for example, is only counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.api.checks import broken_paths, check
from reconciler.api.cross_checks import Sight, cross_checks, sight
from reconciler.api.document_codec import from_document
from reconciler.api.documents import (
    Document,
    IcebergCatalog,
    Origin,
    TableLayout,
    TableLayoutPolicy,
)
from reconciler.api.excerpt import render_problems
from reconciler.api.schema import KINDS, POLICY
from reconciler.api.source import RawDocument, parse_yaml
from reconciler.api.support import ignored_of, instead, is_operators, not_acted_on
from reconciler.api.version import API_VERSION, GROUP
from reconciler.errors import InvalidDocuments, Problem, UserError

STDIN = "-"
STDIN_NAME = "<stdin>"
MAX_FILE_BYTES = 4 * 2**20
SLIP = 0.9
"""Similarity from which a misspelt kind is read as the suggested one."""
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Documents:
    """The valid documents of a set of files."""

    policies: tuple[TableLayoutPolicy, ...] = ()
    catalogs: tuple[IcebergCatalog, ...] = ()
    table_layouts: tuple[TableLayout, ...] = ()

    @property
    def all(self) -> tuple[Document, ...]:
        return (*self.policies, *self.catalogs, *self.table_layouts)


@dataclass
class Reading:
    """The result of reading a set of files."""

    documents: Documents = Documents()
    """The valid documents."""
    problems: list[Problem] = field(default_factory=list)
    """What is wrong in the files, in the order of their reading."""
    sources: dict[str, str] = field(default_factory=dict)
    """The text of each file by its name, for excerpts in messages."""
    files: int = 0
    """The number of files read."""
    skipped: int = 0
    """The number of documents of other kinds, which are left alone."""

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


def load(paths: Iterable[str | Path]) -> Documents:
    """Return the documents under `paths`.

    Raises InvalidDocuments with every error, UserError if there is nothing to read.
    """
    reading = read(paths)
    if reading.errors:
        raise invalid(reading)
    return reading.documents


def invalid(reading: Reading) -> InvalidDocuments:
    """Return the error that holds and renders all errors of a reading."""
    errors = tuple(reading.errors)
    return InvalidDocuments(errors, render_problems(errors, reading.sources))


def parse_documents(paths: Iterable[str | Path]) -> tuple[list[RawDocument], Reading]:
    """Return our documents as raw values with positions, and what was found so far."""
    reading = Reading()
    found: list[RawDocument] = []
    for file, named in _files(paths):
        text = _text(file, reading)
        if text is None:
            continue
        reading.files += 1
        reading.sources[file] = text
        documents, failure = parse_yaml(text, file)
        if failure is not None:
            reading.problems.append(_softened(failure, text, named))
        ours = [item for document in documents for item in _unlisted(document)]
        for document in ours:
            if _is_ours(document, named=named and len(ours) == 1):
                found.append(document)
            elif document.value is not None:
                reading.skipped += 1
    return found, reading


def read(paths: Iterable[str | Path]) -> Reading:
    """Return everything under `paths`, with every error and warning."""
    given = [str(path) for path in paths]
    raw, reading = parse_documents(given)
    valid: list[Document] = []
    sights: list[Sight] = []
    for document in raw:
        kind, problems = _kind(document)
        if kind is not None:
            problems = _checked(document, kind, problems)
            sights.append(sight(document, kind))
        reading.problems += problems
        if kind is None:
            continue
        if any(problem.severity == "error" for problem in problems):
            ignored = ignored_of(kind, document.value, broken_paths(document, kind))
        else:
            valid.append(from_document(document.value, Origin(document.file, document.line)))
            ignored = not_acted_on(valid[-1])
        reading.problems += _unsupported(document, kind, ignored) if ignored else []
    reading.problems += cross_checks(sights)
    reading.problems.sort(key=lambda p: (p.file, p.line, p.column, p.field))
    reading.documents = Documents(
        tuple(value for value in valid if isinstance(value, TableLayoutPolicy)),
        tuple(value for value in valid if isinstance(value, IcebergCatalog)),
        tuple(value for value in valid if isinstance(value, TableLayout)),
    )
    if not raw and not reading.problems:
        files = "file" if reading.files == 1 else "files"
        others = f"{reading.skipped} of other kinds" if reading.skipped else "no other document"
        raise UserError(
            f"no document of {GROUP} in {', '.join(given)}",
            details=(f"{reading.files} YAML {files} read, {others}",),
            do="name where your policies are, or write one with: layoutctl init TABLE",
        )
    return reading


def _files(paths: Iterable[str | Path]) -> Iterator[tuple[str, bool]]:
    """Yield (file, named by the user) of each file once, directories in sorted order."""
    seen: set[str] = set()
    for given in paths:
        for file, named in _expand(str(given)):
            identity = file if file == STDIN_NAME else os.path.realpath(file)
            if identity not in seen:
                seen.add(identity)
                yield file, named


def _expand(given: str) -> Iterator[tuple[str, bool]]:
    path = Path(given)
    if given == STDIN:
        yield STDIN_NAME, True
    elif path.is_dir():
        for root, directories, names in os.walk(path):
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            for name in sorted(names):
                file = Path(root, name)
                if name.endswith(_SUFFIXES) and not name.startswith(".") and file.is_file():
                    yield str(file), False
    elif path.exists():
        yield given, True
    else:
        raise UserError(
            f"{given}: no such file or directory",
            do="name a YAML file, a directory of them, or - for standard input",
        )


def _text(file: str, reading: Reading) -> str | None:
    """Return the file's text, None with a problem recorded if it has none."""

    def refuse(message: str, hint: str = "") -> None:
        reading.problems.append(Problem(file, 0, 0, "", message, hint))

    try:
        if file == STDIN_NAME:
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        refuse(f"cannot be read: {error.strerror or error}")
        return None
    if len(data) > MAX_FILE_BYTES:
        refuse(f"is larger than {MAX_FILE_BYTES // 2**20} MiB", "split it")
        return None
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        reading.problems.append(Problem(file, line, 0, "", "is not UTF-8 text", "save it as UTF-8"))
        return None


def _softened(failure: Problem, text: str, named: bool) -> Problem:
    """Turn an error into a warning for a file in a directory that cannot be parsed and is not ours.

    A file that never mentions our group belongs to someone else, for example a chart's template.
    """
    if named or GROUP in text:
        return failure
    return Problem(
        failure.file, failure.line, failure.column, "", failure.message, "skipped", "warning"
    )


def _unlisted(document: RawDocument) -> Iterator[RawDocument]:
    """Yield the items of a `kind: List`, as kubectl prints several objects; else the document
    itself."""
    value = document.value
    if not (isinstance(value, dict) and value.get("kind") == "List" and "items" in value):
        yield document
        return
    items = value["items"]
    for number, item in enumerate(items if isinstance(items, list) else []):
        prefix = ("items", number)
        positions = {
            path[2:]: position
            for path, position in document.positions.items()
            if path[:2] == prefix
        }
        line = positions[()].line
        repeated = [path[2:] for path in document.repeated if path[:2] == prefix]
        yield RawDocument(document.file, line, item, positions, document.problems, repeated)
        document.problems = []


def _is_ours(document: RawDocument, *, named: bool) -> bool:
    """Whether a document is ours, by group or kind.

    The only document of a file that the user named is always ours, so that a misspelt head is
    reported instead of skipped.
    """
    value = document.value
    if not isinstance(value, dict):
        return named and value is not None
    group = str(value.get("apiVersion", "")).partition("/")[0]
    foreign = isinstance(value.get("apiVersion"), str) and isinstance(value.get("kind"), str)
    return group == GROUP or value.get("kind") in KINDS or (named and not foreign)


def _kind(document: RawDocument) -> tuple[str | None, list[Problem]]:
    """Return (the kind whose schema applies, its problems).

    A slip of a letter or two leaves no doubt about the kind; else the kind is None and the document
    cannot be checked further.
    """
    value = document.value
    if not isinstance(value, dict):
        found = document.problem((), "is not a document", "a mapping with apiVersion and kind")
        return None, [*document.problems, found]
    kind = value.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind, []
    from difflib import get_close_matches

    close = get_close_matches(str(kind), KINDS, n=1)
    hint = " | ".join(KINDS) + (f". Did you mean {close[0]}?" if close else "")
    what = f'"{kind}" is not a kind of {API_VERSION}' if kind is not None else "is required"
    problem = document.problem(("kind",), what, hint)
    meant = get_close_matches(str(kind), KINDS, n=1, cutoff=SLIP)
    return (meant[0], [problem]) if meant else (None, [*document.problems, problem])


def _checked(document: RawDocument, kind: str, problems: list[Problem]) -> list[Problem]:
    """Add all other problems; those of the kind have been reported."""
    found = check(document, kind)
    if problems:
        found = [item for item in found if item.field != "kind" or item in document.problems]
    return problems + found


def _unsupported(document: RawDocument, kind: str, ignored: Iterable[str]) -> list[Problem]:
    """Return warnings on valid fields that this version, or layoutctl, does not act on."""
    spec = document.value["spec"]
    approval = spec.get("approval") if kind == POLICY else None
    automatic = isinstance(approval, dict) and approval.get("mode") == "Automatic"
    refused = "; Automatic approval refuses this policy" if automatic else ""

    def not_a_document(item: str) -> Problem:
        message, hint = "not acted on yet by this version", instead(kind, item) + refused
        if is_operators(kind, item):
            message, hint = "the operator acts on it, layoutctl does not", instead(kind, item)
        return document.problem(_path(item), message, hint, severity="warning")

    return [not_a_document(item) for item in ignored]


def _path(dotted: str) -> tuple[str | int, ...]:
    return tuple(dotted.split("."))
