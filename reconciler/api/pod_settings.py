"""Which environment, labels and annotations a catalog document may give to its jobs' pods
(`spec.jobs.podTemplate`).

As with Spark settings: a document may tune and place; it may not load code, carry a credential, or
replace what the reconciler sets. The operator refuses a catalog that does, as `validate` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.catalog_checks import has_user_info
from reconciler.api.catalog_properties import is_credential
from reconciler.api.spark_settings import CODE, CREDENTIAL, OURS
from reconciler.api.version import GROUP

Place = tuple[str | int, ...]
Problem = tuple[Place, str]
"""(path below podTemplate, why it is refused)."""

_CODE = re.compile(
    r"(LD|DYLD|PYTHON|PYSPARK|SPARK|HADOOP|JAVA|JDK|_?JAVA|HIVE|YARN|CONDA|PIP|GIT|PERL\d?|RUBY|NODE"
    r"|NPM|BASH|ARROW|GLIBC|GCONV|MALLOC|OPENSSL|SASL|KRB5|KUBE)_?.*"
    r"|_JAVA_OPTIONS|.*JAVA_?OPT(ION)?S?|CLASSPATH|.*_PRELOAD|.*_PLUGINS?(_PATH)?|.*PATH|ENV|SHELL"
    r"|SHELLOPTS|IFS|PROMPT_COMMAND|VIRTUAL_ENV|BROWSER|EDITOR|PAGER|LOCALE_ARCHIVE|NLSPATH",
    re.IGNORECASE,
)
_OURS = re.compile(
    r"(LAYOUT|LAYOUTCTL|POD|KUBERNETES|PYICEBERG)(_.*)?|HOME|USER|TMP|TEMP|TMPDIR|HOSTNAME|PWD"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|AWS_CA_BUNDLE"
    r"|AWS_EC2_METADATA_DISABLED",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r".*(KEY|SECRET|TOKEN|PASSW|CREDENTIAL|CONNECTION_STRING|SAS)(_.*|$).*"
    r"|AWS_(PROFILE|ROLE_.*|CONTAINER_.*|CONFIG_FILE|SHARED_.*)|NETRC",
    re.IGNORECASE,
)
_KUBERNETES = re.compile(r"(.*\.)?(kubernetes\.io|k8s\.io)/.*|spark-.*|job-name|controller-uid")
_TUNES = re.compile(r"cluster-autoscaler\.kubernetes\.io/.*")


def refused_variable(name: str, value: str = "") -> str:
    """Why a variable is refused, "" when it is allowed."""
    if _OURS.fullmatch(name):
        return OURS
    if _CREDENTIAL.fullmatch(name) or is_credential(name) or has_user_info(value):
        return CREDENTIAL
    return CODE if _CODE.fullmatch(name) else ""


def refused_label(key: str) -> str:
    """Why a label or an annotation is refused, "" when it is allowed."""
    ours = key.startswith((f"{GROUP}/", "app.kubernetes.io/"))
    if ours or (_KUBERNETES.fullmatch(key) and not _TUNES.fullmatch(key)):
        return "the name is reserved"
    name = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
    domain = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
    if not re.fullmatch(rf"({domain}/)?{name}", key):
        return "it is not a valid name of a label"
    return ""


def problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything refused in a podTemplate; what is of a wrong type is the schema's matter."""
    metadata = template.get("metadata")
    for place in ("labels", "annotations"):
        found = metadata.get(place) if isinstance(metadata, Mapping) else None
        for key in found if isinstance(found, Mapping) else ():
            if why := refused_label(str(key)):
                yield ("metadata", place, key), why
    env = template.get("env")
    for number, item in enumerate(env if isinstance(env, list) else ()):
        if not isinstance(item, Mapping):
            continue
        if why := refused_variable(str(item.get("name", "")), str(item.get("value") or "")):
            yield ("env", number, "name"), why
        if ("value" in item) == ("valueFrom" in item):
            yield ("env", number), "a variable has either value or valueFrom"
