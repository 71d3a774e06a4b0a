"""`-m "not spark"` starts no JVM: markers follow from fixtures, and `java` needs the marker."""

from __future__ import annotations

import subprocess

import pytest

from reconciler.spark.session import runtime
from tests.conftest import MARKED_BY_FIXTURE

pytest_plugins = ["pytester"]

STARTS_A_JVM = sorted(
    fixture
    for fixture, marker in MARKED_BY_FIXTURE.items()
    if marker in ("session", "jvm", "rest", "flink")
)

ASKS = """
import pytest

@pytest.fixture
def {fixture}(): ...

@pytest.fixture
def table({fixture}): ...

def test_asks({fixture}): ...
def test_asks_through_another(table): ...
def test_asks_for_none(): ...

@pytest.mark.jvm
def test_owns_one(): ...
"""


@pytest.mark.parametrize("fixture", STARTS_A_JVM)
def test_not_spark_deselects_whoever_asks_for_a_jvm(
    pytester: pytest.Pytester, fixture: str
) -> None:
    pytester.makepyfile(ASKS.format(fixture=fixture))
    chosen = pytester.runpytest_inprocess("-p", "tests.conftest", "-m", "not spark")
    chosen.assert_outcomes(passed=1, deselected=3)


def test_java_of_a_test_without_the_marker_fails_and_says_so() -> None:
    done = subprocess.run([runtime.java_command(), "-version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (97, "")
    assert "spark" in done.stderr


def test_without_its_jars_a_test_of_flink_is_skipped_and_says_how_to_get_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(pytester.path / "empty"))
    pytester.makepyfile("def test_asks(flink): ...")
    ran = pytester.runpytest_inprocess("-p", "tests.conftest", "-m", "flink and spark", "-rs")
    ran.assert_outcomes(skipped=1)
    ran.stdout.fnmatch_lines(["*`make flink` downloads them*"])
