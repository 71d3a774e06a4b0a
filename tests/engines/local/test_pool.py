"""Processes of a pool: answers, errors, limits, and nothing that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engines.local import pool
from reconciler.engines.local.pool import Cancelled, Killed, Limit, OutOfMemory, Pool
from reconciler.rewrite import task_calls
from reconciler.rewrite.columns import Column
from reconciler.rewrite.task import FileProperties, Key, Order, Resources, Task
from tests.engines.local import work
from tests.rewrite.model import table_of, write

ROOMY = Limit(memory_bytes=512 << 20, base_bytes=256 << 20)
PATIENCE = 30.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Pool]:
    with Pool(2) as made:
        yield made


def test_each_piece_of_work_has_a_process_and_scratch_of_its_own(shared: Pool) -> None:
    first, second = (shared.run(work.where, limit=ROOMY) for _ in range(2))
    assert len({first[0], second[0], os.getpid()}) == 3
    assert Path(first[1]).parent != Path(second[1]).parent
    assert not Path(first[1]).parent.exists()


def test_arguments_and_results_cross(shared: Pool) -> None:
    assert shared.run(work.product, 6, 7, limit=ROOMY) == 42


def test_an_error_is_raised_as_it_is(shared: Pool) -> None:
    with pytest.raises(FileNotFoundError) as found:
        shared.run(work.fail, "s3://b/f", limit=ROOMY)
    assert found.value.filename == "s3://b/f"


def test_an_error_that_cannot_be_sent_keeps_its_name_and_text(shared: Pool) -> None:
    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        shared.run(work.fail_oddly, limit=ROOMY)


@pytest.mark.parametrize("end", [work.die, work.leave])
def test_a_process_that_dies_is_noticed(shared: Pool, end: Callable[..., None]) -> None:
    with pytest.raises(Killed) as caught:
        shared.run(end, *([3] if end is work.leave else []), limit=ROOMY)
    assert not isinstance(caught.value, OutOfMemory), "nobody measured that it took too much"
    assert shared.run(work.product, 2, 3, limit=ROOMY) == 6


def test_a_server_that_ended_is_started_again() -> None:
    with Pool(1) as pool:
        assert pool.run(work.product, 2, 3, limit=ROOMY) == 6
        assert pool._server is not None
        pool._server.kill()
        pool._server.wait()
        assert pool.run(work.product, 3, 3, limit=ROOMY) == 9


def test_memory_beyond_the_limit_ends_the_work(shared: Pool) -> None:
    small = Limit(memory_bytes=64 << 20, base_bytes=128 << 20)
    with pytest.raises(OutOfMemory):
        shared.run(work.take, 600, limit=small)
    assert shared.run(work.take, 100, limit=ROOMY) == 100 << 20


def test_cancelled_work_is_killed_with_what_it_started(shared: Pool, tmp_path: Path) -> None:
    note = tmp_path / "ids"
    with pytest.raises(Cancelled):
        shared.run(work.wait_with_child, str(note), limit=ROOMY, stopping=note.exists)
    assert all(_ends(int(one)) for one in note.read_text().split())


def test_no_more_processes_work_than_slots() -> None:
    with Pool(1) as one, tempfile.TemporaryDirectory() as directory:
        note, stop = Path(directory) / "ids", threading.Event()
        first = threading.Thread(
            target=_quietly, args=(one, work.wait, str(note)), kwargs={"stopping": stop.is_set}
        )
        first.start()
        _until(note.exists)
        with pytest.raises(Cancelled):
            one.run(work.product, 1, 1, limit=ROOMY, stopping=lambda: True)
        stop.set()
        first.join()
        assert one.run(work.product, 1, 1, limit=ROOMY) == 1


def test_a_task_imports_nothing_of_who_planned_it(shared: Pool, tmp_path: Path) -> None:
    """A process lives for one task: what it imports is paid for by each."""
    columns = (Column(1, "k", "long"), Column(2, "s", "string"))
    table, file = table_of(columns), write(tmp_path / "in.parquet", columns, [[2, "b"], [1, "a"]])
    output = f"file:{tmp_path}/out.parquet"
    task = Task(table, (file,), Order((Key(1),)), (output,), 10, FileProperties())
    call = (task, None, Resources(64 << 20), None)
    made, modules = shared.run(work.imported_by, task_calls.rewritten, *call, limit=ROOMY)
    assert made.files[0].rows == 2
    assert [one for one in modules if one.split(".")[0] in ("reconciler", "pyiceberg")] == []


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_what_processes_use_counts_as_the_servers(shared: Pool) -> None:
    """A user sees it in `time`, and benches add it up."""
    assert shared._server is not None
    server = shared._server.pid
    before = _of_children(server)
    used = shared.run(work.burn, 0.3, limit=ROOMY)
    assert _until(lambda: _of_children(server) - before > used - 0.1)


def _of_children(process: int) -> float:
    """CPU seconds of the process's children that have ended (proc(5), stat: cutime, cstime)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def test_a_pool_that_has_only_begun_leaves_nothing() -> None:
    before = _directories(os.getpid())
    with Pool(1) as made:
        made.begin()
        server = made._server
        assert server is not None
        assert server.poll() is None
    assert server.poll() is not None
    assert _directories(os.getpid()) - before == set()


def test_what_was_begun_does_the_work() -> None:
    with Pool(1) as made:
        made.begin()
        server = made._server
        assert made.run(work.product, 6, 7, limit=ROOMY) == 42
        assert made._server is server


def test_a_server_that_ended_before_it_listened_is_started_again() -> None:
    with Pool(1) as made:
        made.begin()
        assert made._server is not None
        made._server.kill()
        made._server.wait()
        assert made.run(work.product, 6, 7, limit=ROOMY) == 42


def test_a_server_that_cannot_start_says_why() -> None:
    with Pool(1) as made:
        made._loads = ("reconciler.no_such_module",)
        with pytest.raises(Killed) as caught:
            made.run(work.product, 1, 1, limit=ROOMY)
    assert "reconciler.no_such_module" in str(caught.value)


def test_a_server_that_never_listens_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    monkeypatch.setattr(pool, "_server", lambda *_: subprocess.Popen(command, **pipes))
    monkeypatch.setattr(pool, "START_SECONDS", 0.01)
    with Pool(1) as made:
        made.begin()
        server = made._server
        with pytest.raises(Killed):
            made.run(work.product, 1, 1, limit=ROOMY)
        assert server is not None
        assert server.poll() == -signal.SIGKILL


def test_a_closed_pool_leaves_nothing() -> None:
    before = _directories(os.getpid())
    with Pool(1) as made:
        made.run(work.product, 1, 1, limit=ROOMY)
        assert len(_directories(os.getpid()) - before) == 1
    assert _directories(os.getpid()) - before == set()


def test_a_killed_planner_takes_its_processes_along(tmp_path: Path) -> None:
    """The next pool of this machine removes the directories that the killed process left."""
    note = tmp_path / "ids"
    program = textwrap.dedent(f"""
        from reconciler.engines.local.pool import Limit, Pool
        from tests.engines.local import work
        Pool(1).run(work.wait, {str(note)!r}, limit=Limit(1 << 30, 1 << 30))
    """)
    planner = subprocess.Popen([sys.executable, "-c", program])
    _until(note.exists)
    left = _directories(planner.pid)
    assert left
    planner.send_signal(signal.SIGKILL)
    planner.wait()
    assert all(_ends(int(one)) for one in note.read_text().split())
    with Pool(1) as other:
        other.run(work.product, 1, 1, limit=ROOMY)
        assert not any(one.exists() for one in left)


def _quietly(made: Pool, *call: object, **options: object) -> None:
    with pytest.raises(Cancelled):
        made.run(*call, limit=ROOMY, **options)  # type: ignore[arg-type]


def _directories(process: int) -> set[Path]:
    """The pools' directories of a process: other lanes of the suite have some too."""
    return set(Path(tempfile.gettempdir()).glob(f"{pool.PREFIX}*-{process}-*"))


def _ends(process: int) -> bool:
    return _until(lambda: not _lives(process))


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()
