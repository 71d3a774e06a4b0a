"""The runtime is fetched once, checked, and a Spark that brings its own is respected."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.spark.session import runtime
from tests.said import Said


def _java(directory: Path, script: str) -> Path:
    """A JAVA_HOME whose `java` is a shell script."""
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text("#!/bin/sh\n" + script)
    java.chmod(0o755)
    return directory


def _serving(directory: Path, content: str) -> str:
    """A `java` that, run as Ivy, leaves `content` where the jar is expected."""
    return (
        'for a in "$@"; do case "$a" in *"[artifact]"*) '
        'd="${a%/*}"; mkdir -p "$d"; '
        f'printf "%s" "{content}" > "$d/{runtime.SQLITE_JDBC.file_name}";; esac; done\n'
        f"echo run >> {directory}/runs\n"
    )


def test_a_jar_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "jar bytes"
    jar = runtime.Jar(
        "org.xerial", "sqlite-jdbc", "3.54.1.0", hashlib.sha256(content.encode()).hexdigest()
    )
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "jdk", _serving(tmp_path, content))))
    first = runtime.fetch([jar])
    assert runtime.fetch([jar]) == first
    assert first[0].read_text() == content
    assert (tmp_path / "runs").read_text().splitlines() == ["run"]
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [".lock", jar.file_name]


def test_a_jar_with_another_checksum_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "jdk", _serving(tmp_path, "evil"))))
    with pytest.raises(UserError) as refused:
        runtime.fetch([runtime.SQLITE_JDBC])
    said(refused.value)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [".lock"]


def test_a_spark_that_brings_the_runtime_needs_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "iceberg-spark-runtime-4.1_2.13-1.12.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert runtime.session_jars({"spark.sql.catalog.rec.type": "rest"}) == ()


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages"])
def test_a_runtime_named_in_the_settings_needs_no_download(key: str) -> None:
    named = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    assert runtime.session_jars({key: named}) == ()


def test_spark_defaults_are_read_in_both_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# comment\nspark.jars.packages  a:b:c\nspark.driver.memory=3g\n\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert runtime.spark_defaults() == {
        "spark.jars.packages": "a:b:c",
        "spark.driver.memory": "3g",
    }


@pytest.mark.parametrize(
    ("version", "script"),
    [
        ("11.0.22", 'echo "java.base@11.0.22"'),
        ("17.0.15", 'echo "java.base@17.0.15"'),
        ("1.8.0_402", 'echo "version \\"1.8.0_402\\"" >&2; exit 1'),
    ],
    ids=["old", "module", "older"],
)
def test_an_unfit_jdk_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, script: str, said: Said
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "jdk", script)))
    with pytest.raises(UserError) as caught:
        runtime.check_java()
    text = caught.value.render()
    assert version in text or version.startswith("17")
    said(text)
    assert "JDK 17" in text and "jdk.incubator.vector" in text
    assert text.endswith("JAVA_HOME")


def test_no_java_at_all_is_one_clear_message(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError) as refused:
        runtime.check_java()
    said(refused.value)
