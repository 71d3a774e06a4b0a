"""What a pod template may give to the pods of jobs: tuning and placement, no code or secret."""

from __future__ import annotations

import pytest

from reconciler.api.pod_settings import problems, refused_label, refused_variable
from reconciler.kube.pods import CA_VARIABLES

LOADS_CODE = [
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "JAVA_HOME",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYSPARK_PYTHON",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "CLASSPATH",
    "PATH",
    "HADOOP_CONF_DIR",
    "HADOOP_CLASSPATH",
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "KUBECONFIG",
    "SPARK_EXECUTOR_OPTS",
    "GLIBC_TUNABLES",
    "NODE_OPTIONS",
    "PERL5OPT",
    "RUBYOPT",
    "ld_preload",
]
OURS = [
    "LAYOUT_RUN",
    "LAYOUT_IMAGE",
    "LAYOUTCTL_CACHE",
    "POD_IP",
    "POD_NAMESPACE",
    "KUBERNETES_SERVICE_HOST",
    "HOME",
    "TMPDIR",
    "PYICEBERG_CATALOG__X__URI",
]
CREDENTIALS = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "DB_PASSWORD",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_PROFILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
]
ALLOWED = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "https_proxy",
    "no_proxy",
    "AWS_REGION",
    "TZ",
    "LANG",
    "TEAM",
]


@pytest.mark.parametrize("name", [*LOADS_CODE, *OURS, *CREDENTIALS, *CA_VARIABLES])
def test_names_that_load_code_carry_credentials_or_are_ours_are_refused(name: str) -> None:
    assert refused_variable(name)


@pytest.mark.parametrize("name", ALLOWED)
def test_proxies_regions_and_names_of_ones_own_are_allowed(name: str) -> None:
    assert refused_variable(name, "http://proxy.example:3128") == ""


def test_a_password_in_a_proxys_address_is_a_credential() -> None:
    assert refused_variable("HTTPS_PROXY", "http://user:pw@proxy:3128")


@pytest.mark.parametrize(
    "key",
    ["layout.lakehouse.dev/layout", "app.kubernetes.io/name", "batch.kubernetes.io/job-name",
     "spark-role", "job-name", "container.apparmor.security.beta.kubernetes.io/driver", "a/b/c"],
)  # fmt: skip
def test_labels_that_others_rely_on_are_refused(key: str) -> None:
    assert refused_label(key)


def test_a_variable_has_one_source() -> None:
    reference = {"configMapKeyRef": {"name": "a", "key": "b"}}
    both = {"env": [{"name": "A", "value": "x", "valueFrom": reference}, {"name": "B"}]}
    assert [place for place, _ in problems(both)] == [("env", 0), ("env", 1)]


def test_what_is_of_a_wrong_type_is_left_to_the_schema() -> None:
    for template in ({"env": "x"}, {"env": ["x"]}, {"metadata": 1}, {"metadata": {"labels": []}}):
        assert list(problems(template)) == []
