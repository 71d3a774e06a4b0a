"""Plans that fell: whatever the state, the commands that the error names lead to a converged table.

Each case changes the table, or the policy, after a plan was saved or while it is carried out.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli import targets
from reconciler.cli.apply_run import ApplyRun
from tests.cli.test_plan_apply import (  # noqa: F401 (fixtures)
    Cli,
    cli,
    name_of,
    policy_file,
    with_spark,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("with_spark")]

Disturb = Callable[[Any], None]


def _policy(path: Path, table: Any, key: str = "day") -> str:
    layout = {
        "clustering": {"mode": "Declared", "keys": [key]},
        "files": {"quietPeriod": "0s"},
    }
    return policy_file(path, table, layout=layout)


def _append(table: Any) -> None:
    table.append(table.refresh().scan(row_filter="id < 700").to_arrow())


def _expire(table: Any) -> None:
    """All snapshots but the head."""
    table.refresh()
    head = table.current_snapshot().snapshot_id
    change = table.maintenance.expire_snapshots()
    old = [item.snapshot_id for item in table.metadata.snapshots if item.snapshot_id != head]
    change.by_ids(old).commit()


def _expire_base(table: Any) -> None:
    _append(table)
    _expire(table)


def _replace_inputs(table: Any) -> None:
    rows = table.refresh().scan().to_arrow()
    table.overwrite(rows.slice(0, 2_000))
    for number in range(1, 4):
        table.append(rows.slice(number * 2_000, 2_000))


def _roll_back(table: Any) -> None:
    table.refresh()
    before = table.metadata.snapshots[-2].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(before).commit()


def _create_again(table: Any) -> None:
    rows, schema, name = table.refresh().scan().to_arrow(), table.schema(), table.name()
    properties = dict(table.properties)
    table.catalog.drop_table(name)
    made = table.catalog.create_table(name, schema, properties=properties)
    for number in range(4):
        made.append(rows.slice(number * 900, 2_000))


def _commands(err: str) -> list[list[str]]:
    """What the errors say to run, without the name of the program."""
    return [shlex.split(line)[1:] for line in re.findall(r"do: (layoutctl .+)", err)]


def _converged(run: Cli, table: Any, policy: str, rows: int | None = None) -> bool:
    code, _, _ = run("plan", name_of(table), "-f", policy, "--detailed-exitcode")
    live = table.catalog.load_table(table.name()).scan().to_arrow().num_rows
    return code == 0 and rows in (None, live)


@pytest.mark.parametrize(
    "disturb", [_expire_base, _replace_inputs, _roll_back, _create_again], ids=lambda f: f.__name__
)
def test_a_saved_plan_that_fell_names_the_command_that_makes_another(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
    disturb: Disturb,
) -> None:
    policy = _policy(tmp_path / "p.yaml", scattered)
    assert cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")[0] == 0
    disturb(scattered)
    rows = scattered.catalog.load_table(scattered.name()).scan().to_arrow().num_rows
    code, _, err = cli("apply", "plan.json", "--yes")
    assert code == 1
    (remedy,) = _commands(err)
    assert cli(*remedy)[0] == 0
    assert cli("apply", "plan.json", "--yes", "--until-converged")[0] == 0
    assert _converged(cli, scattered, policy, rows)
    code, _, err = cli("apply", "plan.json", "--yes")
    assert (code, "is done" in err) == (0, True)


def test_a_standing_plan_whose_base_expired_is_replaced_by_the_next_apply(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
) -> None:
    policy, name = _policy(tmp_path / "p.yaml", scattered), name_of(scattered)
    assert cli("plan", name, "-f", policy, "--out", "plan.json")[0] == 0
    _expire_base(scattered)
    rows = scattered.refresh().scan().to_arrow().num_rows
    assert cli("apply", name, "-f", policy, "--yes", "--until-converged")[0] == 0
    assert _converged(cli, scattered, policy, rows)


def test_a_plan_past_its_time_and_one_of_another_policy_are_made_anew_in_their_file(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = _policy(tmp_path / "p.yaml", scattered)
    assert cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")[0] == 0
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
    clock = SimpleNamespace(UTC=dt.UTC, datetime=SimpleNamespace(now=lambda zone: later))
    monkeypatch.setattr(targets, "dt", clock)
    code, _, err = cli("apply", "plan.json", "--yes")
    assert code == 1
    (remedy,) = _commands(err)
    assert cli(*remedy)[0] == 0

    _policy(tmp_path / "p.yaml", scattered, "id")
    code, _, err = cli("apply", "plan.json", "-f", policy, "--yes")
    assert code == 1
    (remedy,) = _commands(err)
    assert cli(*remedy)[0] == 0
    code = cli("apply", "plan.json", "-f", policy, "--yes", "--until-converged")[0]
    assert code == 0
    assert _converged(cli, scattered, policy)


def test_refresh_replaces_the_frozen_plan(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
) -> None:
    policy, name = _policy(tmp_path / "p.yaml", scattered), name_of(scattered)

    def planned(*options: str) -> str:
        return cli("plan", name, "-f", policy, "-o", "name", *options)[1].strip()

    frozen = planned("--out", "plan.json")
    _append(scattered)
    standing, refreshed, kept = planned(), planned("--refresh"), planned()
    assert frozen == standing
    assert refreshed == kept != frozen


def _at(monkeypatch: pytest.MonkeyPatch, phase: str, *acts: Callable[[], object]) -> None:
    """Acts once, at the first event of the phase that `apply` reports."""
    left, honest = list(acts), ApplyRun.on_event

    def on_event(run: Any, event: Any) -> None:
        honest(run, event)
        while event.phase == phase and left:
            left.pop(0)()

    monkeypatch.setattr(ApplyRun, "on_event", on_event)


def test_deletes_on_inputs_while_the_rest_is_committed(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files with new deletes are left out, and planned with their deletes next."""
    name = name_of(scattered)
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='2', "
        "'write.delete.mode'='merge-on-read')"
    )
    policy = _policy(tmp_path / "p.yaml", scattered)
    _at(monkeypatch, "commit", lambda: spark.sql(f"DELETE FROM {name} WHERE id = 5"))
    code, out, err = cli(
        "apply", name, "-f", policy, "--auto-approve", "--until-converged", "-o", "json"
    )
    assert code == 0, out + err
    assert '"conflicts": 1' in out
    assert _converged(cli, scattered, policy, 7_999)


def test_a_snapshot_that_expires_while_it_is_read(
    cli: Cli,  # noqa: F811
    scattered_alone: Any,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = name_of(scattered_alone)
    policy = _policy(tmp_path / "p.yaml", scattered_alone)
    expire = (
        f"CALL rec.system.expire_snapshots(table => '{'.'.join(scattered_alone.name())}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    _at(
        monkeypatch, "start",
        lambda: spark.sql(f"DELETE FROM {name} WHERE id % 1000 = 5"),
        lambda: spark.sql(expire),
    )  # fmt: skip
    code, out, err = cli(
        "apply", name, "-f", policy, "--auto-approve", "--until-converged", "-o", "json"
    )
    assert code == 0, out + err
    assert '"conflicts": 1' in out
    assert "restore" not in err
    assert _converged(cli, scattered_alone, policy, 7_992)


def test_a_plan_that_a_person_rolled_back_runs_again_under_a_changed_policy_only(
    cli: Cli,  # noqa: F811
    scattered: Any,
    tmp_path: Path,
) -> None:
    policy, name = _policy(tmp_path / "p.yaml", scattered), name_of(scattered)
    assert cli("apply", name, "-f", policy, "--auto-approve")[0] == 0
    _roll_back(scattered)
    code, _, err = cli("apply", name, "-f", policy, "--auto-approve", "--until-converged")
    assert code == 3
    assert "RolledBack" in err and "spec.layout" in err
    _policy(tmp_path / "p.yaml", scattered, "id")
    assert cli("apply", name, "-f", policy, "--auto-approve", "--until-converged")[0] == 0
    assert _converged(cli, scattered, policy, 8_000)
