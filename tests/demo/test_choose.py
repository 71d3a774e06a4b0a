"""Spark's team plays where Spark can run, DuckDB's everywhere else."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reconciler.cli.main import build
from reconciler.demo import choose, data, script
from reconciler.demo.duckdb_team import DuckDbTeam
from reconciler.demo.spark_team import SparkTeam
from reconciler.errors import UserError


@pytest.fixture
def place(tmp_path: Path) -> data.Place:
    return data.prepare(tmp_path)


def java(directory: Path, modules: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    program.chmod(0o755)


def test_with_a_jdk_the_team_is_sparks(
    place: data.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "jdk", r"java.base@17.0.2\njdk.incubator.vector@17.0.2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    chosen, _ = choose.team_of(place, quick=False)
    assert isinstance(chosen, SparkTeam)
    quick, why = choose.team_of(place, quick=True)
    assert isinstance(quick, DuckDbTeam)
    assert "--quick" in why


def test_an_old_java_is_not_enough(
    place: data.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "jdk", r"java.base@11.0.2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    chosen, why = choose.team_of(place, quick=False)
    assert isinstance(chosen, DuckDbTeam)
    assert "JDK 17" in why


def test_without_java_the_team_is_duckdbs(
    place: data.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    chosen, why = choose.team_of(place, quick=False)
    assert isinstance(chosen, DuckDbTeam)
    assert "JDK 17" in why


def test_without_spark_the_team_is_duckdbs(
    place: data.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "pyspark" else found(name, *rest)

    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", without)
    chosen, why = choose.team_of(place, quick=False)
    assert isinstance(chosen, DuckDbTeam)
    assert "Spark" in why


def test_without_the_extra_the_demo_says_what_to_install_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = CliRunner().invoke(build(), ["demo", "--quick", "--dir", str(tmp_path / "demo")])
    assert isinstance(ended.exception, UserError)
    assert "[demo]" in str(ended.exception.do)
    assert not (tmp_path / "demo").exists()


def test_a_generator_that_is_no_python_package_has_no_version(
    place: data.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "tpchgen-cli":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    said = script._versions(DuckDbTeam(place))
    assert "pyiceberg" in said and "tpchgen" not in said
