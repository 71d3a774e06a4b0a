"""The archive of Spark's classes: made once, taken by every session that it fits, by no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.jobs import class_data, session


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark of two jars, and a Java."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    for name in ("spark/jars/a.jar", "spark/jars/b.jar", "java/bin/java", "java/release"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "java" / "bin" / "java").chmod(0o755)
    return tmp_path / "spark"


def archive(home: Path, size: int = 7) -> Path:
    path = home / f"{class_data._stem()}-{size}.jsa"
    path.write_bytes(b"x" * 7)
    return path


def test_a_session_takes_the_archive_beside_the_collector(home: Path) -> None:
    assert class_data.options(()) == ""
    option = f"-XX:SharedArchiveFile={archive(home)}"
    assert option in class_data.options(["-Xss2m"])
    made = session.launch_settings({}, "test", "local[2]")["spark.driver.defaultJavaOptions"]
    assert made.startswith("-XX:+UseParallelGC ") and option in made
    made = session.launch_settings({}, "test", "k8s://https://10.0.0.1:443")
    assert option in made["spark.driver.defaultJavaOptions"]
    assert option not in made.get("spark.executor.defaultJavaOptions", "")


def test_one_that_was_cut_short_is_none(home: Path) -> None:
    """A JVM that maps it would crash."""
    archive(home, size=8)
    assert class_data.options(()) == ""


@pytest.mark.parametrize("changed", ["spark/jars/b.jar", "java/release"])
def test_one_of_another_spark_or_java_is_none(home: Path, changed: str) -> None:
    archive(home)
    os.utime(home.parent / changed, (1, 1))
    assert class_data.options(()) == ""


@pytest.mark.parametrize(
    "theirs", ["-XX:SharedArchiveFile=/theirs.jsa", "-Xshare:off", "-XX:ArchiveClassesAtExit=/a"]
)
def test_what_the_user_chose_stays(
    home: Path, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(home)
    conf = {"spark.driver.extraJavaOptions": theirs}
    made = session.launch_settings(conf, "test", "local[2]")
    assert made["spark.driver.defaultJavaOptions"] == "-XX:+UseParallelGC"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", theirs)
    made = session.launch_settings({}, "test", "local[2]")
    assert made["spark.driver.defaultJavaOptions"] == "-XX:+UseParallelGC"


def test_where_it_cannot_be_made_nothing_else_fails(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert class_data.main() == 0
    told = capsys.readouterr()
    assert told.err.startswith("Spark sessions will start more slowly: ")
    assert (told.out, [path.name for path in home.iterdir()]) == ("", ["jars"])


@pytest.mark.jvm
def test_the_jvm_has_its_classes_from_it(tmp_path: Path) -> None:
    path = class_data.make()
    assert class_data.make() == path
    loaded = tmp_path / "loaded"
    program = f"""
from reconciler.jobs import session
conf = {{"spark.driver.extraJavaOptions": "-Xlog:class+load:file={loaded}"}}
spark = session.start(conf, app="test", master="local[1]")
assert spark.range(100).selectExpr("sum(id)").collect()[0][0] == 4950
session.stop(spark)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    shared = sum("shared objects file (top)" in line for line in loaded.open())
    assert shared > 5000
