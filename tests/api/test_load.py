"""Files and directories: what is read, skipped, refused, and checked across documents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.api import support
from reconciler.api.load import MAX_FILE_BYTES, load, read
from reconciler.api.schema import POLICY
from reconciler.errors import InvalidDocuments, UserError
from tests.said import Said

HEAD = "apiVersion: layout.lakehouse.dev/v1alpha1\n"
CATALOG = (
    HEAD
    + "kind: IcebergCatalog\nmetadata: {name: w}\nspec:\n  type: rest\n  catalogName: w\n"
    + "  properties: {uri: 'http://c'}\n"
)


def policy(name: str = "p", include: str = "a.b", *, catalog: str = "w", extra: str = "") -> str:
    return (
        HEAD
        + f"kind: TableLayoutPolicy\nmetadata: {{name: {name}}}\nspec:\n"
        + f"  catalogRef: {{name: {catalog}}}\n  tables: {{include: [{include}]}}\n{extra}"
    )


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def test_a_directory_is_walked_and_other_documents_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, a=policy("a"), deploy="apiVersion: apps/v1\nkind: Deployment\nspec: {x: [}\n")
    write(tmp_path, values="replicas: 3\n", empty="", comment="# nothing\n")
    write(tmp_path, service="apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    write(tmp_path / "deep", b=policy("b", "c.d") + "---\n" + CATALOG)
    write(tmp_path / ".git", c="kind: TableLayoutPolicy\n")
    (tmp_path / "notes.txt").write_text("kind: TableLayoutPolicy\n")
    reading = read([tmp_path])
    assert [p.name for p in reading.documents.policies] == ["a", "b"]
    assert [c.name for c in reading.documents.catalogs] == ["w"]
    assert reading.skipped == 2
    assert [(p.severity, Path(p.file).name) for p in reading.problems] == [
        ("warning", "deploy.yaml")
    ]


def test_origin_names_file_and_line_of_each_document(tmp_path: Path) -> None:
    write(tmp_path, a=policy("a") + "---\n" + policy("b", "c.d"))
    first, second = load([tmp_path / "a.yaml"]).policies
    assert str(first.origin) == f"{tmp_path}/a.yaml:1"
    assert second.origin.line == 8


def test_problems_of_all_files_come_at_once_in_order(tmp_path: Path) -> None:
    write(tmp_path, a=policy("A", extra="  x: 1\n"))
    write(tmp_path, b=policy("b", "c.d", extra="  interval: soon\n"))
    with pytest.raises(InvalidDocuments) as raised:
        load([tmp_path])
    places = [(Path(p.file).name, p.line, p.field) for p in raised.value.problems]
    assert places == [
        ("a.yaml", 3, "metadata.name"),
        ("a.yaml", 7, "spec.x"),
        ("b.yaml", 7, "spec.interval"),
    ]


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-16"),
    ],
    ids=["bom", "crlf", "utf-16"],
)
def test_files_of_other_systems_are_read(tmp_path: Path, encode: object) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(encode(policy("a", extra="  interval: soon\n")))  # type: ignore[operator]
    (problem,) = read([path]).errors
    assert (problem.line, problem.column, problem.field) == (7, 13, "spec.interval")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        b"a: \x00\x01\n",
        b"x" * (MAX_FILE_BYTES + 1),
        b"just words\n",
        b"- a\n- b\n",
        b"kind: TableLayoutPolcy\napiVersion: layout.lakehouse.dev/v1alpha1\n",
        b"apiVersion: layout.lakehouse.dev/v1alpha1\n",
        b"metadata: {name: x}\n",
        b"kind: TableLayoutPolicy\n",
    ],
    ids=[
        "encoding", "yaml", "size", "text", "list", "kind", "no kind", "no version", "no metadata",
    ],
)  # fmt: skip
def test_garbage_that_was_named_is_a_problem(tmp_path: Path, data: bytes, said: Said) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    reading = read([path])
    assert reading.errors
    said("\n".join(problem.message for problem in reading.errors))


def test_a_misspelt_kind_says_what_was_meant(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a=policy().replace("kind: TableLayoutPolicy", "kind: TableLayoutPolcy"))
    (problem,) = read([tmp_path]).errors
    assert (problem.line, problem.field) == (2, "kind")
    said(problem.hint)


@pytest.mark.parametrize("name", ["missing.yaml", "missing"])
def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path, name: str, said: Said) -> None:
    with pytest.raises(UserError) as refused:
        load([tmp_path / name])
    said(refused.value)


def test_a_directory_without_documents_is_an_error(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a="apiVersion: v1\nkind: Service\n")
    with pytest.raises(UserError) as raised:
        load([tmp_path])
    said(raised.value)
    said(raised.value.details[0])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, a=policy())
    (tmp_path / "a.yaml").chmod(0)
    (problem,) = read([tmp_path]).errors
    assert problem.file == str(tmp_path / "a.yaml") and problem.field == ""


def test_links_in_circles_and_one_file_twice_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, a=policy())
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "copy.yaml").symlink_to(tmp_path / "a.yaml")
    assert len(load([tmp_path, tmp_path / "a.yaml"]).policies) == 1


def test_a_list_as_kubectl_prints_it_is_taken_apart(tmp_path: Path) -> None:
    body = policy("a", extra="  interval: soon\n")
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    write(tmp_path, a=f"apiVersion: v1\nkind: List\nitems:\n-{indented[1:]}")
    (problem,) = read([tmp_path]).errors
    assert (problem.line, problem.field) == (10, "spec.interval")


def test_two_policies_that_name_one_table_are_an_error(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a=policy("a", "s.t"), b=policy("b", "'`s`.t'"), c=policy("c", "s.*"))
    (problem,) = read([tmp_path]).errors
    assert problem.field == "spec.tables.include[0]"
    said(problem.message)
    assert "a.yaml:1" in problem.hint


def test_documents_with_other_faults_are_compared_too(tmp_path: Path) -> None:
    broken = policy("b", "s.t", catalog="v", extra="  interval: soon\n  suspend: [x]\n")
    broken += "  engine: {maxConcurrentJobs: 3}\n"
    write(tmp_path, a=policy("a", "s.t", catalog="v"), b=broken, c=CATALOG.replace("rest", "rst"))
    found = {(Path(p.file).stem, p.field, p.severity) for p in read([tmp_path]).problems}
    assert found == {
        ("a", "spec.catalogRef.name", "warning"),
        ("b", "spec.catalogRef.name", "warning"),
        ("b", "spec.tables.include[0]", "error"),
        ("b", "spec.interval", "error"),
        ("b", "spec.suspend", "error"),
        ("b", "spec.engine.maxConcurrentJobs", "warning"),
        ("c", "spec.type", "error"),
    }


def test_a_misspelt_kind_hides_no_other_fault(tmp_path: Path) -> None:
    misspelt = policy(extra="  interval: soon\n").replace("LayoutPolicy", "LayoutPolcy")
    write(tmp_path, a=misspelt)
    assert [p.field for p in read([tmp_path]).errors] == ["kind", "spec.interval"]
    write(tmp_path, a=misspelt.replace("TableLayoutPolcy", "Table"))
    assert [p.field for p in read([tmp_path]).errors] == ["kind"]


@pytest.mark.parametrize(
    "excluding", ["{include: [s.t], exclude: [s.t]}", '{include: [s.t], exclude: ["s.*"]}']
)
def test_a_name_that_one_of_two_policies_excludes_is_not_a_conflict(
    tmp_path: Path, excluding: str
) -> None:
    settled = policy("b").replace("{include: [a.b]}", excluding)
    write(tmp_path, a=policy("a", "s.t"), b=settled)
    assert not read([tmp_path]).problems


@pytest.mark.parametrize("pattern", ["s.*", "**.orders_*", "`s`.*"])
def test_two_policies_with_one_pattern_are_a_warning_at_the_one_that_yields(
    tmp_path: Path, pattern: str, said: Said
) -> None:
    plain = pattern.replace("`", "")
    write(tmp_path, z=policy("first", f"'{plain}'"), a=policy("second", f"'{pattern}'"))
    reading = read([tmp_path])
    (problem,) = reading.problems
    assert problem.severity == "warning"
    assert (Path(problem.file).name, problem.field) == ("a.yaml", "spec.tables.include[0]")
    said(problem.message)
    said(problem.hint)
    assert len(reading.documents.policies) == 2


def test_the_older_of_two_stored_policies_gets_what_both_name(tmp_path: Path, said: Said) -> None:
    def stored(name: str, created: str) -> str:
        head = f"{{name: {name}, creationTimestamp: {created}}}"
        return policy(name, "s.t").replace(f"{{name: {name}}}", head)

    write(tmp_path, a=stored("a", "2026-02-01T00:00:00Z"), b=stored("b", "2026-01-01T00:00:00Z"))
    (problem,) = read([tmp_path]).problems
    assert (problem.severity, Path(problem.file).name) == ("warning", "a.yaml")
    said(problem.message)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{include: ["s.*"], exclude: ["s.**"]}', '{include: ["s.*"]}'),
        ('{include: ["s.*"]}', '{include: ["s.*"], exclude: ["*.*"]}'),
        ('{include: ["s.*"]}', '{include: ["s.a*"]}'),
        ('{include: ["s.*"]}', "{include: [s.t]}"),
        ('{include: ["s.*"], exclud: ["s.**"]}', '{include: ["s.*"]}'),
        ('{include: ["s.*"], exclude: [1]}', '{include: ["s.*"]}'),
    ],
)
def test_patterns_that_need_not_meet_are_not_spoken_of(
    tmp_path: Path, first: str, second: str
) -> None:
    texts = [policy(name).replace("{include: [a.b]}", tables) for name, tables in
             (("a", first), ("b", second))]  # fmt: skip
    write(tmp_path, a=texts[0], b=texts[1])
    assert not [p for p in read([tmp_path]).problems if p.field.startswith("spec.tables.include")]


def test_policies_of_other_catalogs_and_namespaces_do_not_meet(tmp_path: Path) -> None:
    other = policy("b", "s.t").replace("{name: b}", "{name: b, namespace: other}")
    write(tmp_path, a=policy("a", "s.t"), b=other, c=policy("c", "s.t", catalog="x"))
    assert not read([tmp_path]).errors


def test_one_name_twice_is_an_error(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a=policy("a", "s.t"), b=policy("a", "s.u"))
    (problem,) = read([tmp_path]).errors
    said(problem.message)


def test_a_catalog_that_no_document_defines_is_a_warning_only(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a=policy("a", catalog="v"), b=CATALOG)
    reading = read([tmp_path])
    assert not reading.errors
    (problem,) = reading.problems
    said(problem.message)


def test_without_any_catalog_document_nothing_is_said_of_catalogs(tmp_path: Path) -> None:
    write(tmp_path, a=policy("a", catalog="v"))
    assert not read([tmp_path]).problems


def test_fields_not_acted_on_are_warnings_and_automatic_policies_hear_of_it(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(support.NOT_ACTED_ON, POLICY, (("spec.deletes.mode", "nothing is set"),))
    extra = (
        "  deletes: {compaction: Major, mode: Keep}\n  approval: {mode: Automatic}\n"
        "  budgets: [{name: a, per: 1h, maxCpuTime: 1h}]\n"
    )
    write(tmp_path, a=policy(extra=extra))
    (warning,) = read([tmp_path]).problems
    assert warning.severity == "warning"
    assert (warning.line, warning.field) == (7, "spec.deletes.mode")
    said(warning.hint)


def test_a_pattern_that_begins_with_the_catalog_is_a_warning(tmp_path: Path, said: Said) -> None:
    write(tmp_path, a=policy(include="w.sales.orders"))
    (warning,) = read([tmp_path]).problems
    assert warning.severity == "warning"
    said(warning.hint)
