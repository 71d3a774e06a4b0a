"""Decides which Spark settings a catalog document may give to its jobs (`spec.jobs.sparkConf`).

A setting may tune; it may not load code, contain or reach a credential, move work to another
identity or image, or undo what the reconciler relies on. One table, for the driver, for `validate`
and for the reference. Whoever may write an IcebergCatalog can create pods through it anyway: this
prevents mistakes, it does not separate tenants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.api.catalog_properties import is_credential

CODE = "it names code to load"
CREDENTIAL = "it carries a credential, or says where one is"
POD = "it changes what the pods may do"
OURS = "the reconciler sets it"
NOT_SPARK = "it is not a Spark setting"


@dataclass(frozen=True, slots=True)
class Refused:
    """Settings whose whole name matches the pattern, in any case, and why they are refused."""

    pattern: str
    why: str


REFUSED: tuple[Refused, ...] = (
    # Classes, jars, scripts and options of the JVM, by name and by the form of the name.
    Refused(
        r"spark\.(jars|files|archives|py-?files|submit|plugins|kryo|r|pyspark|python)(\..*)?", CODE
    ),
    Refused(
        r".*(class|classes|classpath|classname|impl|factory|factories|provider|providers)", CODE
    ),
    Refused(r".*\.(impl|provider|providers|plugin|plugins)\..*", CODE),
    Refused(r".*(extensions?|listeners?|serializer|registrator|mapper|mapping|resolver)", CODE),
    Refused(r".*(class|path|libr?ary)(path|first)", CODE),
    Refused(r".*(javaoptions|discoveryscript|command|executable|featuresteps|filters)", CODE),
    Refused(r"spark\.(shuffle\.manager|shuffle\.sort\.io\..*|broadcast\.factory)", CODE),
    Refused(r"spark\.(metrics|connect|history|deploy|sql\.hive|sql\.streaming)\..*", CODE),
    Refused(r"spark\.sql\.(catalog|defaultcatalog|catalogimplementation)(\..*)?", OURS),
    Refused(r"spark\.hadoop\.(hadoop\.security|javax|hive|ipc|rpc)\..*", CODE),
    # Credentials, and ways to them: environment, mounted secrets, key stores.
    Refused(r"spark\.(executorenv|kubernetes\.driverenv|appmasterenv)\..*", CREDENTIAL),
    Refused(r"spark\.kubernetes\..*(secret|secretkeyref|volumes)\..*", CREDENTIAL),
    Refused(r"spark\.(ssl|authenticate|acls|kerberos|security|io\.encryption)(\..*)?", CREDENTIAL),
    Refused(r".*(keystore|truststore|keytab|principal|proxyuser|krb5).*", CREDENTIAL),
    Refused(r"spark\.(redaction|sql\.redaction|eventlog|logconf|ui)(\..*)?", CREDENTIAL),
    # Identity, image and rights of the pods.
    Refused(
        r"spark\.kubernetes\.(namespace|context|trust|authenticate|kerberos|hadoop|file"
        r"|container\.image|driver|executor\.container\.image|executor\.podnameprefix"
        r"|executor\.disableconfigmap|executor\.deleteontermination|executor\.schedulername)(\..*)?",
        POD,
    ),
    Refused(r"spark\.kubernetes\..*(podtemplate.*|serviceaccountname|securitycontext.*)", POD),
    Refused(r"spark\.kubernetes\..*\.label\..*", POD),
    Refused(r"spark\.(yarn|mesos)\..*", POD),
    # Settings on which sizing and correctness depend.
    Refused(r"spark\.(master|app\.|driver\.|local\.|home|speculation|dynamicallocation).*", OURS),
    Refused(
        r"spark\.executor\.(instances|cores|memory|pyspark\.memory|resource\..*|id|port)", OURS
    ),
    Refused(r"spark\.(executor|driver|task|worker)\.resource\..*", OURS),
    Refused(
        r"spark\.sql\.(warehouse\.dir|session\.timezone|unionoutputpartitioning|casesensitive"
        r"|ansi\..*|sources\..*|optimizer\.excludedrules|iceberg\..*)",
        OURS,
    ),
)


def refusal(name: str, value: str) -> str:
    """Return why a setting is refused, "" if it is allowed."""
    plain = name.strip().lower()
    if plain != name.lower() or not re.fullmatch(r"spark\.[a-z0-9_.\-/]+", plain):
        return NOT_SPARK
    if is_credential(name):
        return CREDENTIAL
    if "${" in value:  # Spark would insert a variable of the driver's environment
        return CREDENTIAL
    return next((item.why for item in REFUSED if re.fullmatch(item.pattern, plain)), "")


def refused_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return every refused setting with the reason, in order of name."""
    judged = ((name, refusal(name, conf[name])) for name in sorted(conf))
    return {name: why for name, why in judged if why}
