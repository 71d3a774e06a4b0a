"""The client on a real API server: refusals have their classes, writes their preconditions."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from kubernetes.config import ConfigException

from reconciler.errors import EXIT_BLOCKED, EXIT_UNAVAILABLE, EXIT_USER, UserError
from reconciler.kube.api import Api
from reconciler.kube.connection import Connection, Source
from reconciler.kube.errors import (
    AlreadyExists,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    Unauthorized,
)
from reconciler.kube.kinds import CONFIG_MAP, EVENT, NAMESPACE, POD, POLICY, SECRET, TABLE_LAYOUT
from tests.operator.cluster_objects import layout, policy

LAYOUT = "sales.lineitem-7k2m5qd4xz"


@pytest.fixture
def api(cluster) -> Api:
    cluster.install_crds()
    return Api.from_environment(str(cluster.kubeconfig))


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "data": data}


def kubeconfig(cluster, namespace: str, token: str):
    path = cluster.directory / f"{namespace}.token.kubeconfig"
    run = [f"--kubeconfig={path}"]
    server = (f"--server={cluster.url}", f"--certificate-authority={cluster.ca}")
    cluster.kubectl("config", "set-cluster", "c", *server, *run)
    cluster.kubectl("config", "set-credentials", "u", f"--token={token}", *run)
    context = ("--cluster=c", "--user=u", f"--namespace={namespace}")
    cluster.kubectl("config", "set-context", "x", *context, *run)
    cluster.kubectl("config", "use-context", "x", *run)
    return path


def calls_of(api: Api) -> Counter[tuple[str, str]]:
    """Return a count by (verb, plural) that grows with the calls from now on."""
    seen: Counter[tuple[str, str]] = Counter()
    lock = threading.Lock()

    def observe(verb: str, plural: str, status: int, seconds: float) -> None:
        with lock:
            seen[verb, plural] += 1

    api.observer = observe
    return seen


def test_a_list_in_pages_is_whole_and_carries_kind_and_version(api, namespace, monkeypatch):
    monkeypatch.setattr("reconciler.kube.api.PAGE_SIZE", "3")
    for i in range(7):
        api.create(CONFIG_MAP, namespace, config_map(f"m{i}", v=str(i)))
    calls = calls_of(api)
    found = api.list(CONFIG_MAP, namespace, {"app": "x"})
    assert sorted(item["metadata"]["name"] for item in found) == [f"m{i}" for i in range(7)]
    assert {(item["apiVersion"], item["kind"]) for item in found} == {("v1", "ConfigMap")}
    assert calls["list", "configmaps"] == 3
    assert list(api.each(CONFIG_MAP, namespace, {"app": "x"})) == found
    assert len(api.list(CONFIG_MAP, namespace, {"app": ""})) == 7
    assert api.list(CONFIG_MAP, namespace, {"app": "y"}) == []


def test_any_character_can_be_applied(api, namespace):
    """Apply is read as YAML, which takes fewer escapes than JSON."""
    values = {"ice": "\U0001f9ca", "bom": "\ufeff", "next": "\x85", "del": "\x7f", "tab": "a\tb"}
    body = {"metadata": {"name": "odd"}, "data": values}
    api.apply(CONFIG_MAP, namespace, body)
    assert api.get(CONFIG_MAP, namespace, "odd")["data"] == values


def test_metadata_only_carries_no_content(api, namespace, kubectl):
    kubectl("create", "secret", "generic", "s", "--from-literal=password=planted")
    assert "planted" not in str(api.get_metadata(SECRET, namespace, "s"))
    assert "data" not in api.get_metadata(SECRET, namespace, "s")
    assert all("data" not in item for item in api.list(SECRET, namespace, metadata_only=True))


def test_errors_report_what_happened_and_how_the_command_ends(api, namespace):
    with pytest.raises(NotFound) as found:
        api.get(CONFIG_MAP, namespace, "absent")
    assert found.value.exit_code == EXIT_USER
    assert "absent" in found.value.render() and namespace in found.value.render()
    api.create(CONFIG_MAP, namespace, config_map("m"))
    with pytest.raises(AlreadyExists):
        api.create(CONFIG_MAP, namespace, config_map("m"))
    broken = policy()
    broken["spec"]["tables"] = {"include": []}
    with pytest.raises(Invalid) as invalid:
        api.create(POLICY, namespace, broken)
    assert "spec.tables.include" in invalid.value.render()


def test_a_quota_is_a_block_and_not_a_lack_of_rights(api, namespace, kubectl):
    kubectl("create", "quota", "q", "--hard=pods=0")
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "sh", "args": ["true"]}]},
    }

    def refused() -> bool:
        try:
            api.create(POD, namespace, pod)
        except QuotaExceeded as error:
            return error.exit_code == EXIT_BLOCKED
        except Forbidden as error:
            assert "status unknown for quota" in error.render()
        return False

    from tests.operator.cluster_objects import until

    assert until(refused)


def test_a_status_is_written_only_on_the_version_that_was_read(api, namespace):
    api.create(TABLE_LAYOUT, namespace, layout())
    read = api.get(TABLE_LAYOUT, namespace, LAYOUT)
    version = read["metadata"]["resourceVersion"]
    written = api.put_status(
        TABLE_LAYOUT, namespace, LAYOUT, {"observedGeneration": 1, "table": {"uuid": "u"}}, version
    )
    assert written["spec"] == read["spec"]
    with pytest.raises(Conflict) as conflict:
        api.put_status(TABLE_LAYOUT, namespace, LAYOUT, {"observedGeneration": 2}, version)
    assert conflict.value.exit_code == EXIT_UNAVAILABLE
    again = api.put_status(
        TABLE_LAYOUT,
        namespace,
        LAYOUT,
        {"observedGeneration": 1},
        written["metadata"]["resourceVersion"],
    )
    assert "table" not in again["status"], "a status is replaced, not merged"


def test_apply_keeps_other_managers_fields_and_drops_its_own(api, namespace):
    api.apply(TABLE_LAYOUT, namespace, layout())
    api.patch(
        TABLE_LAYOUT,
        namespace,
        LAYOUT,
        {"spec": {"approvedPlan": "p-3f9a1c0b77de4c21a0be"}},
        manager="layoutctl",
    )
    body = layout()
    body["spec"]["policyRef"] = {"name": "sales", "generation": 2}
    applied = api.apply(TABLE_LAYOUT, namespace, body)
    assert applied["spec"]["approvedPlan"] == "p-3f9a1c0b77de4c21a0be"
    assert applied["spec"]["policyRef"]["generation"] == 2


def test_delete_spares_another_object_of_that_name(api, namespace):
    api.create(CONFIG_MAP, namespace, config_map("m"))
    with pytest.raises(Conflict):
        api.delete(CONFIG_MAP, namespace, "m", uid="0b5d1f8e-0000-0000-0000-000000000000")
    api.delete(CONFIG_MAP, namespace, "m", propagation="Background")
    with pytest.raises(NotFound):
        api.delete(CONFIG_MAP, namespace, "m")


def test_repeated_events_are_one_event(api, namespace):
    regarding, calls = api.create(TABLE_LAYOUT, namespace, layout()), calls_of(api)
    for _ in range(5):
        api.event(regarding, "AwaitingApproval", "a plan waits", "Normal")
    api.event(regarding, "Stalled", "it needs a change", "Warning")
    found = api.list(EVENT, namespace)
    assert sorted(item["reason"] for item in found) == ["AwaitingApproval", "Stalled"]
    assert all(item["regarding"]["name"] == LAYOUT for item in found)
    assert calls["create", "events"] == 2


def test_an_event_that_cannot_be_written_stops_nothing(api, namespace):
    gone = {"kind": "X", "apiVersion": "v1",
            "metadata": {"name": "x", "namespace": f"{namespace}-absent", "uid": "u"}}  # fmt: skip
    api.event(gone, "Reason", "text")


def test_a_token_without_rights_is_forbidden_and_a_wrong_one_unauthorized(
    cluster, api, namespace, kubectl
):
    token = kubectl("create", "token", "default").strip()
    path = kubeconfig(cluster, namespace, token)
    poor = Api.from_environment(str(path))
    assert poor.namespace == namespace
    with pytest.raises(Forbidden) as forbidden:
        poor.list(SECRET, namespace)
    assert forbidden.value.exit_code == EXIT_USER
    kubeconfig(cluster, namespace, "wrong")
    stranger = Api.from_environment(str(path))
    with pytest.raises(Unauthorized):
        stranger.list(NAMESPACE)
    kubeconfig(cluster, namespace, token)
    with pytest.raises(Forbidden):
        stranger.list(SECRET, namespace)


def test_a_configuration_that_cannot_be_read_leaves_it_at_the_refusal(cluster, namespace, kubectl):
    path = kubeconfig(cluster, namespace, "wrong")
    stranger = Api.from_environment(str(path))
    path.write_text("")
    with pytest.raises(Unauthorized) as refused:
        stranger.list(NAMESPACE)
    assert refused.value.status == 401
    assert any("cannot read" in line for line in refused.value.details)
    kubeconfig(cluster, namespace, kubectl("create", "token", "default").strip())
    with pytest.raises(Forbidden):
        stranger.list(SECRET, namespace)


@pytest.mark.parametrize("error", [ConfigException("Token file exists but empty."), OSError(2)])
def test_a_token_whose_file_cannot_be_read_again_still_stands(api, error):
    def read_again(_) -> None:
        raise error

    api.connection._configuration.refresh_api_key_hook = read_again
    assert api.list(CONFIG_MAP, "default") is not None


def test_an_outage_is_unavailable_and_ends_by_itself(cluster, api, namespace):
    api.create(CONFIG_MAP, namespace, config_map("m"))
    cluster.stop_api_server()
    try:
        with pytest.raises(ApiUnavailable) as unavailable:
            api.get(CONFIG_MAP, namespace, "m")
    finally:
        cluster.start_api_server()
    assert unavailable.value.exit_code == EXIT_UNAVAILABLE
    assert unavailable.value.status == 0
    assert api.get(CONFIG_MAP, namespace, "m")["metadata"]["name"] == "m"


def test_many_threads_share_it(api, namespace):
    errors: list[Exception] = []
    calls = calls_of(api)

    def work(number: int) -> None:
        try:
            for i in range(5):
                api.create(CONFIG_MAP, namespace, config_map(f"t{number}-{i}"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(api.list(CONFIG_MAP, namespace, {"app": "x"})) == 200
    assert calls["create", "configmaps"] == 200


def test_a_missing_configuration_is_reported_with_what_to_do(monkeypatch, tmp_path, said):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError) as refused:
        Api.from_environment()
    said(refused.value)
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(UserError) as refused:
        Connection(Source(str(tmp_path / "config")))
    said(refused.value)
    with pytest.raises(UserError):
        Connection(Source(str(tmp_path / "absent")))
