"""Each test of the suite runs in one lane, and the quick part starts nothing heavy."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.lanes import NICE, WITH_PODS, follow, lanes, left_out, options, output_of, start, written
from tests.sharing import LONGEST, OWN, in_turn

pytest_plugins = ["pytester"]

MARKERS = ("spark", "session", "second_session", "jvm", "cluster", "s3", "soak")


def chosen(part: str, marks: frozenset[str]) -> int:
    """How many lanes of the part have a test with these markers."""
    return sum(
        Expression.compile(text).evaluate(lambda name, **_: name in marks)
        for text in lanes(part).values()
    )


@pytest.mark.parametrize(
    "marks",
    [frozenset(c) for n in range(len(MARKERS) + 1) for c in itertools.combinations(MARKERS, n)],
    ids=lambda marks: "+".join(sorted(marks)) or "plain",
)
def test_a_test_is_in_the_lane_that_owns_it_or_shared_by_all(marks: frozenset[str]) -> None:
    marks |= {"session"} if "second_session" in marks else set()  # they ask for the session
    marks |= {"spark"} if marks & {"session", "jvm"} else set()  # as conftest marks it
    expected = 1 if marks & OWN else len(lanes("test"))
    assert chosen("test", marks) == (0 if "soak" in marks else expected)
    assert chosen("check", marks) == (0 if marks else 2)


def test_a_check_collects_none_of_the_longest_files() -> None:
    here = ["--collect-only", "-q", *left_out("check"), "tests/state"]
    printed, _ = output_of([sys.executable, "-m", "pytest", *here]).communicate()
    found = {line.partition(":")[0] for line in printed.splitlines() if ".py" in line}
    assert "tests/state/test_state_commit.py" in found
    assert found.isdisjoint(LONGEST)
    assert left_out("test") == []


def test_lanes_that_give_way_are_lanes() -> None:
    assert set(NICE) < set(lanes("test"))


def test_lanes_with_tests_on_a_cluster_are_those_with_pods() -> None:
    on_cluster = {
        lane
        for lane, text in lanes("test").items()
        for marks in ({"cluster"}, {"cluster", "jvm", "spark"})
        if Expression.compile(text).evaluate(lambda name, m=frozenset(marks), **_: name in m)
    }
    assert on_cluster == set(WITH_PODS)


class Queue:
    """What two lanes have claimed, and which files still wait for their programs."""

    def __init__(self, waiting: str = "") -> None:
        self.claimed: set[str] = set()
        self.waiting = set(waiting)

    def lane(self, own: str) -> Iterator[str]:
        return in_turn(own, "abc", lambda file: file in self.waiting, self._claim)

    def _claim(self, file: str) -> bool:
        free = file not in self.claimed
        self.claimed.add(file)
        return free


def test_the_lane_that_has_time_takes_the_next_shared_file() -> None:
    queue = Queue()
    one, other = queue.lane("X"), queue.lane("YZ")
    taken = [next(one), next(other), next(one), next(other), next(other), next(one)]
    assert taken == ["X", "Y", "a", "Z", "b", "c"]
    assert (list(one), list(other)) == ([], [])


def test_shared_files_come_first_while_programs_are_built() -> None:
    queue = Queue(waiting="YZ")
    lane = queue.lane("YZ")
    taken = [next(lane), next(lane)]
    queue.waiting.clear()
    assert [*taken, *lane] == ["a", "b", "Y", "Z", "c"]


def test_with_nothing_else_to_do_a_lane_waits_for_its_programs() -> None:
    queue = Queue(waiting="Yc")
    assert list(queue.lane("Y")) == ["a", "b", "Y", "c"]


def test_the_longest_files_are_taken_first(pytester: pytest.Pytester) -> None:
    root = Path(__file__).parent.parent
    assert all((root / name).is_file() for name in LONGEST)
    late = pytester.mkpydir("tests").joinpath("workload_log")
    late.mkdir()
    (late / "test_hostile.py").write_text("def test_a(): ...")
    pytester.makepyfile(test_early="def test_a(): ...")
    claims = str(pytester.mkdir("claims"))
    plugins = ("-p", "tests.cluster.fixtures", "-p", "tests.sharing")
    result = pytester.runpytest_inprocess("-v", *plugins, "--claims", claims)
    result.stdout.fnmatch_lines(["tests/workload_log/test_hostile.py*", "test_early.py*"])


def test_lanes_of_one_run_have_each_test_once(pytester: pytest.Pytester) -> None:
    for name in ("one", "two", "three"):
        pytester.makepyfile(**{f"test_{name}": "def test_a(): ...\ndef test_b(): ..."})
    (pytester.path / "claims").mkdir()
    arguments = ("-p", "tests.cluster.fixtures", "-p", "tests.sharing", "--claims", "claims")
    first = pytester.runpytest_inprocess(*arguments, "test_one.py", "test_two.py")
    second = pytester.runpytest_inprocess(*arguments)
    first.assert_outcomes(passed=4)
    second.assert_outcomes(passed=2)


def test_a_lane_ends_as_pytest_does(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a(): ...\ndef test_b(): assert 0\ndef test_c(): ...")
    claims = Path(pytester.mkdir("claims"))
    arguments = ("-p", "tests.cluster.fixtures", "-p", "tests.sharing", "--claims", str(claims))
    result = pytester.runpytest_inprocess("-x", *arguments)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_lane_runs_with_the_settings_of_the_project(tmp_path: Path) -> None:
    here = ["--collect-only", "-vv", str(Path(__file__))]
    process = start([*options("not spark", str(tmp_path)), *here])
    printed, _ = process.communicate()
    assert "configfile: pyproject.toml" in printed


def test_what_a_lane_compiles_is_kept(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller's setting is not that of the lanes, nor of the processes that tests start."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    pytester.makepyfile(
        "import subprocess, sys\n"
        "ASKED = 'import sys; sys.exit(sys.dont_write_bytecode)'\n"
        "def test_a():\n"
        "    assert not sys.dont_write_bytecode\n"
        "    assert subprocess.run([sys.executable, '-c', ASKED]).returncode == 0\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]))
    process = start(["-p", "tests.cluster.fixtures", "test_what_a_lane_compiles_is_kept.py"])
    printed, _ = process.communicate()
    assert process.returncode == 0, printed


def test_what_tests_write_is_in_memory_where_there_is_room(tmp_path: Path) -> None:
    with written(tmp_path, room=1) as place:
        assert place is not None and place.parent == tmp_path
        (place / "lane").mkdir()
    assert not place.exists()
    with written(tmp_path, room=1 << 62) as place:
        assert place is None
    with written(tmp_path / "none", room=1) as place:
        assert place is None


def test_a_lane_reports_the_time_of_each_file(pytester: pytest.Pytester) -> None:
    for name in ("one", "two"):
        pytester.makepyfile(**{f"test_{name}": "def test_a(): ...\ndef test_b(): ..."})
    result = pytester.runpytest_inprocess("-p", "tests.durations")
    lines = [line.split() for line in result.outlines if line.endswith((".py", "files)"))]
    assert {line[3]: int(line[2]) for line in lines} == {
        "test_one.py": 2,
        "test_two.py": 2,
        "(all": 4,
    }


def test_the_last_lines_name_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    def prints(*lines: str, code: int) -> subprocess.Popen[str]:
        text = "".join(f"{line}\n" for line in lines)
        return output_of([sys.executable, "-c", f"print({text!r}, end=''); exit({code})"])

    summary = "FAILED tests/test_x.py::test_a - AssertionError"
    running = {
        "lint": prints("fine", code=0),
        "one": prints("F.", summary, "1 failed", code=1),
        "other": prints("..", "2 passed", code=0),
    }
    assert follow(running) == 1
    *_, first, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["one", *summary.split()]
    assert dict(re.findall(r"(\w+): (\d+)", last)) == {"lint": "0", "one": "1", "other": "0"}
