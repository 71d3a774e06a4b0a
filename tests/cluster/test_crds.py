"""The CRDs on a real API server: one corpus, one verdict, and what kubectl shows of them."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from reconciler.api.load import read
from reconciler.api.rules import RULES
from reconciler.api.schema import KINDS, POLICY, crd, spec_schema, structural_schema, with_defaults
from tests.api.corpus_reader import Case, cases
from tests.cluster.cluster import Cluster, KubectlError
from tests.cluster.fixtures import Kubectl

GROUP = "/apis/layout.lakehouse.dev/v1alpha1"
PLURALS = {
    "TableLayoutPolicy": "tablelayoutpolicies",
    "TableLayout": "tablelayouts",
    "IcebergCatalog": "icebergcatalogs",
}
SHORT = {"TableLayoutPolicy": "tlp", "TableLayout": "tl", "IcebergCatalog": "icat"}

Answer = tuple[int, Any]
Send = Callable[..., Answer]


@pytest.fixture(scope="module")
def crds(cluster: Cluster) -> Iterator[Cluster]:
    cluster.install_crds()
    yield cluster


@pytest.fixture(scope="module")
def send(crds: Cluster) -> Send:
    """A document as it is written, straight to the API server: (status, answer)."""
    config = json.loads(crds.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    context = ssl.create_default_context(cafile=str(crds.ca))

    def call(method: str, path: str, text: str) -> Answer:
        request = urllib.request.Request(
            crds.url + path,
            data=text.encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/yaml",
                "Accept": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:  # no such version: plain text
                return error.code, None
            return error.code, json.loads(error.read())

    return call


STRICT = "?dryRun=All&fieldValidation=Strict"


def path_of(kind: str, namespace: str = "default") -> str:
    return f"{GROUP}/namespaces/{namespace}/{PLURALS[kind]}"


def dry_run(send: Send, text: str) -> Answer:
    """What the server would answer to `kubectl create` of a document."""
    found = dict(re.findall(r'^ *"?(kind|apiVersion)"?: "?([^\s",]+)', text, re.MULTILINE))
    path = path_of(found["kind"]).replace("v1alpha1", found["apiVersion"].rpartition("/")[2])
    return send("POST", path + STRICT, text)


def fields(status: int, answer: Any) -> set[str]:
    """The fields that the server finds fault with."""
    if status == 404:
        return {"apiVersion"}
    causes = answer.get("details", {}).get("causes", ())
    named = {
        re.sub(r"\[([A-Za-z]\w*)\]", r".\1", cause["field"])  # a key of a map
        for cause in causes
        if cause.get("field", "<nil>") != "<nil>"
    }
    message = answer["message"]
    unknown = re.findall(r'unknown field "([^"]+)"', message)
    repeated = re.findall(r'key "([^"]+)" already set', message)
    undecodable = re.findall(r"Go struct field ObjectMeta\.(\w+)", message)
    return named | {*unknown, *repeated} | {f"metadata.{name}" for name in undecodable}


def plain(field: str) -> str:
    """`a["b.c"]` as the server writes it: a.b.c."""
    return re.sub(r'\["([^"]*)"\]', r".\1", field)


BAD = [case for case in cases("bad") if case.server != "varies"]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_validate_and_the_server_blame_the_same_fields(send: Send, case: Case) -> None:
    """Except what the corpus marks as seen offline only. The server stops at the first phase that
    fails (decoding, schema, rules), and names no more than metadata's own field when it cannot
    decode that."""
    text = case.path.read_text(encoding="utf-8")
    status, answer = dry_run(send, text)
    ours = {plain(problem.field) for problem in read([case.path]).errors}
    assert ours
    if case.server == "accepts":
        assert status == 201, answer
        return
    assert 400 <= status < 500
    theirs = fields(status, answer)
    assert theirs, answer
    for field in theirs - set(case.server_fields):
        assert field in ours or any(_is_part(field, one) for one in ours), (theirs, ours)


def _is_part(field: str, ours: str) -> bool:
    """A repeated key is named without its path, a map of metadata without its key."""
    return ours.endswith(f".{field}") or (
        field.startswith("metadata.") and ours.startswith(f"{field}.")
    )


@pytest.mark.parametrize("case", cases("good"), ids=lambda case: case.name)
def test_a_good_document_is_accepted_and_defaulted_as_offline(send: Send, case: Case) -> None:
    """Server metadata, which only a stored object has, is left out as `kubectl create` demands."""
    body = yaml.safe_load(case.path.read_text(encoding="utf-8"))
    for name in ("namespace", "uid", "resourceVersion", "managedFields"):
        body["metadata"].pop(name, None)
    status, answer = dry_run(send, json.dumps(body, indent=1))
    assert status == 201, answer
    spec = with_defaults(body, structural_schema(body["kind"]))["spec"]
    assert answer["spec"] == _without_nulls(spec)
    assert answer["status"] == {"observedGeneration": -1}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", cases("transitions"), ids=lambda case: case.name)
def test_the_server_holds_what_is_immutable(send: Send, namespace: str, case: Case) -> None:
    old, new = yaml.safe_load_all(case.path.read_text(encoding="utf-8"))
    path = path_of(old["kind"], namespace)
    status, stored = send("POST", path, json.dumps(old))
    assert status == 201, stored
    new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    status, answer = send("PUT", f"{path}/{new['metadata']['name']}{STRICT}", json.dumps(new))
    if case.server == "accepts":
        assert status == 200, answer
        return
    assert status == 422
    causes = answer["details"]["causes"]
    assert [f"{cause['field']}: {cause['message'].partition(': ')[2]}" for cause in causes] == [
        *case.expected
    ]


# What kubectl shows

MINIMAL = """
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales-facts}
spec:
  catalogRef: {name: warehouse}
  tables: {include: [sales.lineitem]}
"""


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "…",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-11-21T08:00:00Z",
    }


def test_a_new_policy_has_an_unobserved_status_so_that_waiting_does_not_pass_early(
    crds: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=MINIMAL)
    assert kubectl("get", "tlp", "sales-facts", "-o", "jsonpath={.status}") == (
        '{"observedGeneration":-1}'
    )


def test_only_the_status_subresource_changes_status_and_it_does_not_move_the_generation(
    crds: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=MINIMAL)
    status = json.dumps({"status": {"observedGeneration": 1, "summary": {"tables": "11/14"}}})
    patch = ("patch", "tlp", "sales-facts", "--type=merge", "-p", status)
    kubectl(*patch)
    observed = ("get", "tlp", "sales-facts", "-o", "jsonpath={.status.observedGeneration}")
    assert kubectl(*observed) == "-1"
    kubectl(*patch, "--subresource=status")
    assert kubectl(*observed) == "1"
    kubectl("patch", "tlp", "sales-facts", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    generation = ("get", "tlp", "sales-facts", "-o", "jsonpath={.metadata.generation}")
    assert kubectl(*generation) == "2"


def test_the_state_shows_at_a_glance(crds: Cluster, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MINIMAL)
    status = {
        "observedGeneration": 1,
        "summary": {"tables": "11/14", "pendingBytes": "1.2Ti"},
        "conditions": [
            condition("Ready", "True", "Observed"),
            condition("Converged", "False", "AwaitingApproval"),
        ],
    }
    patch = json.dumps({"status": status})
    kubectl(
        "patch", "tlp", "sales-facts", "--type=merge", "--subresource=status", "-p", patch
    )  # fmt: skip
    head, row = kubectl("get", "tlp").splitlines()
    assert head.split() == ["NAME", "READY", "TABLES", "CONVERGED", "WHY", "PENDING", "AGE"]
    shown = ["sales-facts", "True", "11/14", "False", "AwaitingApproval", "1.2Ti"]
    assert row.split()[:-1] == shown
    wide = kubectl("get", "tlp", "-o", "wide").splitlines()
    assert wide[0].split()[6:] == ["APPROVAL", "AGE"]
    assert wide[1].split()[6] == "Manual"


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_shows_a_field_of_the_schema(kind: str) -> None:
    """A column whose path is misspelt would stay empty for ever."""
    (version,) = crd(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"]
        if path.startswith(".metadata."):
            continue
        node = schema
        for name in re.findall(r"\.(\w+)", re.sub(r"\[\?\(.*?\)\]", ".items", path)):
            node = node["items"] if name == "items" else node["properties"][name]
        assert node.get("type") or node.get("x-kubernetes-int-or-string"), path


def test_short_names_and_the_category_find_every_kind(crds: Cluster, kubectl: Kubectl) -> None:
    resources = kubectl("api-resources", "--categories=lakehouse", "--no-headers").splitlines()
    assert {(line.split()[0], line.split()[1], line.split()[-1]) for line in resources} == {
        (PLURALS[kind], SHORT[kind], kind) for kind in KINDS
    }
    kubectl("apply", "-f", "-", stdin=MINIMAL)
    assert "sales-facts" in kubectl("get", "lakehouse")


def durations(schema: dict[str, Any]) -> list[str]:
    """The paths of fields whose schema has allOf, from which kubectl would take the type."""
    found = []
    for name, child in schema.get("properties", {}).items():
        inner = child.get("items", child)
        found += [name] if "allOf" in child else []
        found += [f"{name}.{path}" for path in durations(inner)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_explain_reads_as_documentation(crds: Cluster, kubectl: Kubectl, kind: str) -> None:
    shown = kubectl("explain", f"{SHORT[kind]}.spec", "--recursive")
    for name in spec_schema(kind)["properties"]:
        assert re.search(rf"^  {name}\t", shown, re.MULTILINE), name
    described = " ".join(kubectl("explain", SHORT[kind]).split())
    for path in durations(spec_schema(kind)):
        field = kubectl("explain", f"{SHORT[kind]}.spec.{path}")
        assert f"FIELD: {path.rpartition('.')[2]} <string>" in field, path
    assert f"KIND: {kind}" in described and "<no description>" not in described


def test_explain_shows_defaults_choices_and_meaning(crds: Cluster, kubectl: Kubectl) -> None:
    shown = " ".join(kubectl("explain", "tlp.spec.layout.clustering").split())
    assert "Lexicographic" in shown and "Hilbert" in shown
    assert "<no description>" not in shown


def test_kubectl_refuses_with_a_plain_sentence_and_the_field(
    crds: Cluster, kubectl: Kubectl
) -> None:
    text = MINIMAL + "  approval: {mode: Automatic}\n"
    with pytest.raises(KubectlError) as refused:
        kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    (rule,) = (rule for rule in RULES if (rule.kind, rule.field) == (POLICY, "approval.mode"))
    assert f"spec.{rule.field}" in str(refused.value)
    assert rule.message in str(refused.value)


def test_a_misspelt_field_is_refused_and_not_dropped(crds: Cluster, kubectl: Kubectl) -> None:
    with pytest.raises(KubectlError, match=r'"spec\.suspnd"'):
        kubectl("apply", "-f", "-", stdin=MINIMAL + "  suspnd: true\n")


def test_two_appliers_own_their_own_fields(crds: Cluster, kubectl: Kubectl) -> None:
    """The operator's spec of a TableLayout and a person's approval do not undo each other."""
    layout = """
        apiVersion: layout.lakehouse.dev/v1alpha1
        kind: TableLayout
        metadata: {name: lineitem-7k2m5qd4xz}
        spec:
          catalogRef: {name: warehouse}
          table: {namespace: [sales], name: lineitem}
          policyRef: {name: sales-facts, generation: 7}
    """
    apply = ("apply", "--server-side", "-f", "-", "--field-manager")
    kubectl(*apply, "operator", stdin=layout)
    patch = '{"spec":{"approvedPlan":"p-3f9a1c0b77de4c21a0be"}}'
    kubectl("patch", "tl", "lineitem-7k2m5qd4xz", "--type=merge", "-p", patch)
    kubectl(*apply, "operator", stdin=layout.replace("generation: 7", "generation: 8"))
    spec = json.loads(kubectl("get", "tl", "lineitem-7k2m5qd4xz", "-o", "json"))["spec"]
    assert spec["approvedPlan"] == "p-3f9a1c0b77de4c21a0be"
    assert spec["policyRef"]["generation"] == 8
