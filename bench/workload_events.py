"""Memory and speed of `layoutctl workload import` on a large log of Trino's events.

    python -m bench.workload_events [gigabytes]

Events that a real Trino 476 sent are repeated with other ids, times and values, and with plans as
long as Trino writes them; the log is packed with zstd, so that ten gigabytes take little of the
disk. Prints bytes unpacked, lines, CPU seconds, and the memory of the process in each quarter of
the import, which should not grow.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.lake import Lake

SAMPLES = Path(__file__).parent.parent / "tests/workload_log/histories/trino-476.jsonl"
PLAN_BYTES = 12_000
"""Of the plans of one event: of a join of three tables, as text and as JSON."""
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string()),
                    ("amount", pa.int64())])  # fmt: skip
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def main(arguments: list[str]) -> int:
    size = int(float(arguments[0] if arguments else 2) * 1e9)
    with tempfile.TemporaryDirectory(prefix="layout-events-") as scratch:
        lake = Lake(Path(scratch))
        for name in ("t", "u"):
            lake.opened().create_table(f"lake.{name}", SCHEMA)
        log = lake.directory / "events.jsonl.zst"
        lines = _written(log, size)
        print(f"{size / 1e9:g} GB, {lines:,} events, {log.stat().st_size / 1e6:,.0f} MB packed")
        seconds, cpu, memory = _watched(lake, log)
    at = [max(memory[len(memory) * n // 4 : len(memory) * (n + 1) // 4]) >> 20 for n in range(4)]
    print(f"{seconds:.0f} s, {cpu:.0f} CPU s, {size / cpu / 1e6:.0f} MB of log for a CPU second")
    print(f"most memory by quarter of the time, MiB: {at}")
    return 0


def _written(log: Path, size: int) -> int:
    done = lines = 0
    with pa.CompressedOutputStream(str(log), "zstd") as packed:
        for line in _events():
            packed.write(line)
            done, lines = done + len(line), lines + 1
            if done >= size:
                return lines
    raise AssertionError("events do not end")


def _events() -> Iterator[bytes]:
    """Yield lines without end: those of the samples by turns, one of them a second."""
    samples = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    done = [one for one in samples if "endTime" in one and " t" in one["metadata"]["query"]]
    plan = (
        "- ScanFilterProject[table = rec:lake.t, filterPredicate = (id = 7)] Estimates: {rows: 1}"
    )
    plan = (plan * (PLAN_BYTES // len(plan) + 1))[:PLAN_BYTES]
    rng, number = random.Random(7), 0
    while True:
        for sample in done:
            text = plan[:-1000] + rng.randbytes(500).hex()  # as no two plans are alike
            yield json.dumps(_changed(sample, number, text)).encode() + b"\n"
            number += 1


def _changed(sample: Any, number: int, plan: str) -> Any:
    at = (START + dt.timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
    query = sample["metadata"]["query"] + f" -- {number}"
    if number % 3 == 0:
        query = f"SELECT id, kind FROM t WHERE id = {number} AND kind = 'a{number % 97}'"
    metadata = {**sample["metadata"], "queryId": f"20261101_{number:09d}_x", "query": query,
                "plan": plan}  # fmt: skip
    return {**sample, "metadata": metadata, "createTime": at, "executionStartTime": at,
            "endTime": at}  # fmt: skip


def _watched(lake: Lake, log: Path) -> tuple[float, float, list[int]]:
    """Run the import; return its seconds, its CPU seconds, and its memory in bytes over time."""
    import resource

    lake.opened()
    command = [sys.executable, "-m", "reconciler.cli.main", "workload", "import", str(log)]
    environment = {"PYICEBERG_HOME": str(lake.directory), "PATH": "/usr/bin",
                   "LAYOUTCTL_STATE": str(lake.directory / "state")}  # fmt: skip
    memory, begun = [], time.monotonic()
    process = subprocess.Popen(command, cwd=Path.cwd(), env=environment)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status")
        found = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        memory += [int(found[0].split()[1]) * 1024] if found else []
        time.sleep(0.25)
    if process.returncode:
        raise SystemExit(f"the import ended with {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, memory


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
