"""Settings come from the environment or flags, and a wrong one is named with its variable."""

from __future__ import annotations

import pytest

from reconciler.errors import UserError
from reconciler.operator.settings import OPTIONS, OperatorSettings, from_environment


def test_environment_and_flags_are_read_and_flags_win():
    environ = {
        "LAYOUTCTL_OPERATOR_NAMESPACES": "b, a,",
        "LAYOUTCTL_OPERATOR_MAX_REWRITE_BYTES": "500Gi",
        "LAYOUTCTL_OPERATOR_AMBIENT_CREDENTIALS": "true",
        "LAYOUTCTL_OPERATOR_RELIST": "5m",
        "LAYOUTCTL_OPERATOR_WORKERS": "",
    }
    found = from_environment(environ, {"relist": "1m", "max_jobs": None})
    assert found.namespaces == ("a", "b")
    assert found.max_rewrite_bytes == 500 << 30
    assert found.ambient_credentials is True
    assert found.relist == 60.0
    assert found.workers == OperatorSettings().workers


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAX_JOBS", "0"),
        ("MAX_REWRITE_BYTES", "1 TB"),
        ("CLUSTER_WIDE", "perhaps"),
        ("LOG_LEVEL", "loud"),
        ("RELIST", "often"),
        ("WORKERS", "many"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(variable, value):
    with pytest.raises(UserError) as refused:
        from_environment({f"LAYOUTCTL_OPERATOR_{variable}": value})
    assert f"LAYOUTCTL_OPERATOR_{variable}" in refused.value.render()


def test_namespaces_and_the_whole_cluster_exclude_each_other():
    with pytest.raises(UserError):
        from_environment(
            {"LAYOUTCTL_OPERATOR_NAMESPACES": "a", "LAYOUTCTL_OPERATOR_CLUSTER_WIDE": "true"}
        )


def test_two_processes_of_one_pod_are_two_holders():
    first, second = OperatorSettings(identity="pod"), OperatorSettings(identity="pod")
    assert first.holder != second.holder
    assert first.holder.startswith("pod_")


def test_every_option_is_documented_and_has_one_variable():
    assert all(option.help.endswith(".") for option in OPTIONS)
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
