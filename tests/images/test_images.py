"""Images name what exists, at the versions that are locked, and start what pods ask for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from reconciler.kube.pods import USER, WORK_DIRECTORY
from reconciler.spark.session import runtime

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted(ROOT.glob("images/*/Dockerfile"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def instructions(path: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) with continued lines joined and comments left out."""
    lines = [ln for ln in path.read_text().splitlines() if not ln.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(word, rest) for word, rest in parts]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_what_is_copied_exists(path: Path) -> None:
    copied = [rest.split() for word, rest in instructions(path) if word == "COPY"]
    sources = [name for words in copied if "--from" not in words[0] for name in words[:-1]]
    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_nothing_runs_as_root(path: Path) -> None:
    users = [rest for word, rest in instructions(path) if word == "USER"]
    assert users and not users[-1].startswith(("0", "root"))
    last = [word for word, _ in instructions(path)]
    assert "RUN" not in last[last.index("USER") :]


def test_the_job_image_runs_as_the_user_of_the_manifests() -> None:
    steps = dict(instructions(ROOT / "images/job/Dockerfile"))
    assert steps["USER"] == f"{USER}:{USER}"
    assert steps["WORKDIR"] == WORK_DIRECTORY


def test_the_operator_gives_freed_memory_back() -> None:
    steps = dict(instructions(ROOT / "images/operator/Dockerfile"))
    assert "MALLOC_ARENA_MAX=2" in steps["ENV"].split()


def test_versions_are_those_of_the_lock() -> None:
    text = (ROOT / "images/job/Dockerfile").read_text()
    (pyspark,) = re.findall(r"^pyspark==(\S+)", LOCK, re.MULTILINE)
    assert f"ARG PYSPARK_VERSION={pyspark}\n" in text
    with (ROOT / "pyproject.toml").open("rb") as handle:
        project = tomllib.load(handle)["project"]
    for path in DOCKERFILES:
        (python,) = re.findall(r"ARG PYTHON_IMAGE=python:(\d+\.\d+)", path.read_text())
        assert project["requires-python"] == f">={python}"
    assert f"python{python}/site-packages" in text
    readme = (ROOT / "images/README.md").read_text()
    assert set(re.findall(r"layout-reconciler(?:-job)?:(\S+)", readme)) == {project["version"]}


def test_constraints_pin_every_dependency_that_an_image_installs() -> None:
    lines = module("images/constraints.py").constraints(LOCK)
    pinned = {Requirement(line).name.lower().replace("_", "-") for line in lines}
    assert len(lines) == len(re.findall(r"^[A-Za-z0-9._-]+==", LOCK, re.MULTILINE))
    with (ROOT / "pyproject.toml").open("rb") as handle:
        project = tomllib.load(handle)["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["spark"], *extras["operator"]]
    assert {Requirement(text).name.lower() for text in wanted} <= pinned


def test_the_images_jars_are_the_pinned_ones() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in runtime.IMAGE_JARS)
    assert {jar.revision for jar in runtime.IMAGE_JARS} == {runtime.ICEBERG_RUNTIME.revision}


def test_jars_are_copied_by_the_command_that_the_image_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jar in runtime.IMAGE_JARS:
        (tmp_path / jar.file_name).write_text(jar.module)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "reconciler.spark.session.runtime", str(tmp_path / "out")],
        env={**os.environ, "LAYOUTCTL_CACHE": str(tmp_path)},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    copied = {path.name for path in (tmp_path / "out").iterdir()}
    assert copied == {jar.file_name for jar in runtime.IMAGE_JARS}


SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "4096m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in range(12)},
}


def test_an_executor_gets_what_spark_put_into_its_environment() -> None:
    command = module("images/job/entrypoint.py").command(["executor"], SPARK)
    assert command[0] == "java"
    assert command[1:13] == [f"-Doption={number}" for number in range(12)]
    assert "-Xmx4096m" in command
    assert command[command.index("--hostname") + 1] == "10.1.2.4"
    with_home = module("images/job/entrypoint.py").command(
        ["executor"], {**SPARK, "JAVA_HOME": "/jdk"}
    )
    assert with_home[0] == "/jdk/bin/java"


def test_an_executor_has_the_class_path_of_spark_s_launcher(tmp_path: Path) -> None:
    """An archive of classes is of one class path."""
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "slf4j-api-2.0.17.jar").touch()
    environ = {**SPARK, "SPARK_HOME": str(tmp_path), "SPARK_EXTRA_CLASSPATH": "/more.jar"}
    command = module("images/job/entrypoint.py").command(["executor"], environ)
    assert command[command.index("-cp") + 1] == (
        f"/opt/spark/conf:{jars}/slf4j-api-2.0.17.jar:{jars}/*:/more.jar"
    )


def test_a_driver_is_the_hidden_verb_and_anything_else_a_command() -> None:
    entry = module("images/job/entrypoint.py")
    assert entry.command(["driver"], {})[-1] == "job"
    assert entry.command(["ls", "/work"], {}) == ["ls", "/work"]
