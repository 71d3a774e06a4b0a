"""The archive of Spark's classes: made once, taken by every session that it fits, by no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.spark.session import class_archive, class_data, settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark of two jars, and a Java; without the options of every JVM below the tests."""
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    for name in ("spark/jars/a.jar", "spark/jars/b.jar", "java/bin/java", "java/release"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "java" / "bin" / "java").chmod(0o755)
    return tmp_path / "spark"


def archive(home: Path, size: int = 7) -> Path:
    path = home / f"{class_archive.stem()}-{size}.jsa"
    path.write_bytes(b"x" * 7)
    return path


def test_a_session_takes_the_archive_beside_the_collector(home: Path) -> None:
    assert class_archive.options((), "8g") == ""
    option = f"-XX:SharedArchiveFile={archive(home)}"
    assert option in class_archive.options(["-Xss2m"], "8g")
    made = settings.launch_settings({}, "test", "local[2]")["spark.driver.defaultJavaOptions"]
    assert made.startswith("-XX:+UseParallelGC ") and option in made
    made = settings.launch_settings({}, "test", "k8s://https://10.0.0.1:443")
    assert option in made["spark.driver.defaultJavaOptions"]
    assert made["spark.executor.defaultJavaOptions"].startswith("-XX:+UseParallelGC ")
    assert option in made["spark.executor.defaultJavaOptions"]
    large = {"spark.executor.memory": "40g"}
    made = settings.launch_settings(large, "test", "k8s://https://10.0.0.1:443")
    assert option not in made["spark.executor.defaultJavaOptions"]


def test_one_that_was_cut_short_is_none(home: Path) -> None:
    """A JVM that maps it would crash."""
    archive(home, size=8)
    assert class_archive.options((), "8g") == ""


def test_one_that_goes_away_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(home)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [path])
    path.unlink()
    assert class_archive.options((), "8g") == ""


@pytest.mark.parametrize(
    ("heap", "fits"),
    [("31g", True), ("32767m", True), ("32g", False), ("32768m", False), ("1t", False),
     ("4096", True), ("33554432k", False), ("all of it", False)],
)  # fmt: skip
def test_a_heap_without_compressed_references_has_none(home: Path, heap: str, fits: bool) -> None:
    """It would lose Java's own archive, too."""
    archive(home)
    assert bool(class_archive.options((), heap)) is fits
    made = settings.launch_settings({"spark.driver.memory": heap}, "test", "local[2]")
    assert ("SharedArchiveFile" in made["spark.driver.defaultJavaOptions"]) is fits


@pytest.mark.parametrize("changed", ["spark/jars/b.jar", "java/release"])
def test_one_of_another_spark_or_java_is_none(home: Path, changed: str) -> None:
    archive(home)
    os.utime(home.parent / changed, (1, 1))
    assert class_archive.options((), "8g") == ""


@pytest.mark.parametrize(
    "theirs",
    [
        "-XX:SharedArchiveFile=/theirs.jsa",
        "-Xshare:off",
        "-XX:ArchiveClassesAtExit=/a",
        "-XX:AOTCache=/a",
        "-XX:-UseCompressedOops",
    ],
)
def test_what_the_user_chose_stays(
    home: Path, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(home)
    conf = {"spark.driver.extraJavaOptions": theirs}
    made = settings.launch_settings(conf, "test", "local[2]")
    assert made["spark.driver.defaultJavaOptions"] == "-XX:+UseParallelGC"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", theirs)
    made = settings.launch_settings({}, "test", "local[2]")
    assert made["spark.driver.defaultJavaOptions"] == "-XX:+UseParallelGC"


def test_where_no_session_starts_it_says_what_is_missing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert class_data.main() == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and "JDK 17" in printed.err
    assert (printed.out, [path.name for path in home.iterdir()]) == ("", ["jars"])


def test_a_java_that_makes_no_archive_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(class_data, "_load_classes", lambda scratch, option: None)
    assert class_data.main() == 5
    assert f"move away {home}/conf" in capsys.readouterr().err


def test_a_new_one_replaces_the_old_one_of_its_java_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = archive(home)
    others = home / f"{class_archive.PREFIX}01234567-0123456789abcdef-7.jsa"
    others.write_bytes(b"x" * 7)
    (home / "jars" / "c.jar").write_text("c")
    assert class_archive.options((), "8g") == ""

    def load(scratch: Path, option: str) -> None:
        Path(option.partition("=")[2]).write_bytes(b"y" * 9)

    monkeypatch.setattr(class_data, "_load_classes", load)
    path = class_data.make()
    assert path.read_bytes() == b"y" * 9
    assert (old.exists(), others.exists()) == (False, True)
    assert str(path) in class_archive.options((), "8g")
    assert sorted(each.name for each in home.iterdir()) == sorted(["jars", path.name, others.name])


@pytest.mark.jvm
def test_the_jvm_has_its_classes_from_it_and_our_collector(tmp_path: Path) -> None:
    path = class_data.make()
    assert class_data.make() == path
    loaded = tmp_path / "loaded"
    program = f"""
from reconciler.spark.session import session
conf = {{"spark.driver.extraJavaOptions": "-Xlog:class+load:file={loaded}"}}
spark = session.start(conf, app="test", master="local[1]")
beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
assert [bean.getName() for bean in beans] == ["PS MarkSweep", "PS Scavenge"]
assert spark.range(100).selectExpr("sum(id)").collect()[0][0] == 4950
session.stop(spark)
"""
    users = {key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=users)
    shared = sum("shared objects file (top)" in line for line in loaded.open())
    assert shared > 5000
