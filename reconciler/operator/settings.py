"""The operator's settings: one environment variable each; a flag of `layoutctl operator` takes
precedence.

`OPTIONS` is the only list of them; the flags, the chart's environment and the docs follow it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from reconciler.api.quantities import parse_bytes, parse_duration
from reconciler.api.reach import Network, networks
from reconciler.errors import UserError

PREFIX = "LAYOUTCTL_OPERATOR_"


def _text(value: str) -> str:
    return value.strip()


def _whole(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _port(value: str) -> int:
    port = int(value)
    if not 0 <= port < 1 << 16:
        raise ValueError("must be a port, or 0 for none")
    return port


def _flag(value: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if value.strip().lower() not in known:
        raise ValueError("must be true or false")
    return known[value.strip().lower()]


def _names(value: str) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in value.split(",")} - {""}))


def _networks(value: str) -> tuple[Network, ...]:
    return networks(_names(value))


def _level(value: str) -> str:
    level = value.strip().upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ValueError("must be debug, info, warning or error")
    return level


def _seconds(value: str) -> float:
    seconds = parse_duration(value)
    if seconds < 1:
        raise ValueError("must be at least 1s")
    return float(seconds)


def _share(value: str) -> float:
    percent = float(value.strip().removesuffix("%"))
    if not 0 <= percent <= 90:
        raise ValueError("must be a percentage from 0 to 90")
    return percent / 100


def _option(parse: Callable[[str], Any], default: Any, help_: str) -> Any:
    metadata = {"parse": parse, "help": help_}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """See the help texts; durations in seconds, sizes in bytes."""

    namespaces: tuple[str, ...] = _option(
        _names, (), "Comma-separated namespaces to watch. Empty: the operator's own."
    )
    cluster_wide: bool = _option(_flag, False, "Watch every namespace.")
    namespace: str = _option(
        _text, "", "The operator's own namespace, which holds its Lease. Default: the pod's."
    )
    identity: str = _option(_text, "", "Name in the Lease and in events. Default: the pod's name.")
    lease: str = _option(_text, "layout-reconciler", "Name of the Lease.")
    max_rewrite_bytes: int = _option(
        parse_bytes,
        1 << 40,
        "Most bytes rewritten in 24 h by all policies together, besides their budgets.",
    )
    max_jobs: int = _option(_whole, 4, "Most jobs that run at once, for all policies together.")
    kept_share: float = _option(
        _share,
        0.25,
        "Part of the slots and of the cap on 24 h, in percent, that is kept for namespaces that "
        "have less than the others.",
    )
    turn: float = _option(
        _seconds,
        3600.0,
        "How long a namespace without a job waits for a slot before the job of another gives way, "
        "and how long a job runs at least before it does.",
    )
    ambient_credentials: bool = _option(
        _flag, False, "Let catalogs use the identity of the operator's own pod or node."
    )
    local_files: bool = _option(
        _flag, False, "Let catalogs name local files. Only for everything on one machine."
    )
    allowed_networks: tuple[Network, ...] = _option(
        _networks,
        (),
        "Comma-separated addresses and networks that catalogs may use although they are loopback, "
        "link-local or those of a metadata service.",
    )
    driver_service_account: str = _option(
        _text, "layout-spark", "Service account of jobs if the catalog names none."
    )
    executor_service_account: str = _option(
        _text, "layout-spark-executor", "Service account of Spark executors; it needs no rights."
    )
    image: str = _option(_text, "", "Image of jobs if the catalog names none.")
    local_image: str = _option(
        _text, "", "Image of jobs that run without Spark if the catalog names none."
    )
    catalog_deadline: float = _option(
        _seconds, 300.0, "Time limit for all calls of one reconcile to a catalog and its storage."
    )
    answer_limit: int = _option(
        parse_bytes,
        32 << 20,
        "Most decoded bytes of one answer of a catalog, metadata file, manifest, footer or plan.",
    )
    workers: int = _option(_whole, 8, "Most reconciles that run at once.")
    layout_workers: int = _option(
        _whole, 4, "How many of these may observe and plan a table, which takes memory and CPU."
    )
    relist: float = _option(
        _seconds, 600.0, "How often all objects are listed and reconciled, as a safety net."
    )
    secret_interval: float = _option(
        _seconds, 120.0, "How often the Secrets of catalogs are checked for a new version."
    )
    metrics_port: int = _option(_whole, 8080, "Port of /metrics.")
    health_port: int = _option(_whole, 8081, "Port of /healthz and /readyz.")
    events_port: int = _option(
        _port, 0, "Port of /events, which takes events of catalogs. 0: none are taken."
    )
    events_token_file: str = _option(
        _text, "", "File with the bearer token of events. Empty: none is accepted."
    )
    events_key_file: str = _option(
        _text, "", "File with the key by which events are signed. Empty: none is accepted."
    )
    per_table_metrics: bool = _option(_flag, False, "Export series for each table.")
    log_level: str = _option(_level, "INFO", "debug, info, warning or error.")
    kubeconfig: str = _option(
        _text, "", "Path of a kubeconfig. Default: $KUBECONFIG, or the pod's service account."
    )
    instance: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """Random name of this process, which makes the holder of the Lease unique."""

    @property
    def holder(self) -> str:
        """The holder's name, unique among all operators, restarts of one pod included."""
        return f"{self.identity or os.environ.get('HOSTNAME') or 'operator'}_{self.instance}"


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as people give it."""

    name: str
    """Name of the field of OperatorSettings."""
    variable: str
    """Name of its environment variable."""
    flag: str
    """Its option on the command line."""
    help: str
    """What it does, for people."""
    default: Any
    """The value without either."""
    parse: Callable[[str], Any]
    """Turns the text that people give into the value."""


def _options() -> tuple[Option, ...]:
    found = []
    for item in fields(OperatorSettings):
        if "parse" in item.metadata:
            flag = "--" + item.name.replace("_", "-")
            variable = PREFIX + item.name.upper()
            found.append(
                Option(
                    item.name,
                    variable,
                    flag,
                    item.metadata["help"],
                    item.default,
                    item.metadata["parse"],
                )
            )
    return tuple(found)


OPTIONS = _options()


def from_environment(
    environ: Mapping[str, str], flags: Mapping[str, str | None] | None = None
) -> OperatorSettings:
    """Return the settings. flags: by option name, None if not given. Raises UserError naming the
    bad one."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        source, text = option.flag, (flags or {}).get(option.name)
        if text is None:
            source, text = option.variable, environ.get(option.variable)
        if text is None or text == "":
            continue
        try:
            values[option.name] = option.parse(text)
        except ValueError as error:
            raise UserError(
                f"{source}: {error}", details=(option.help,), do=f"correct {source}"
            ) from error
    settings = OperatorSettings(**values)
    if settings.cluster_wide and settings.namespaces:
        raise UserError(
            "the settings name namespaces to watch and also ask to watch every namespace",
            do=f"set one of {PREFIX}NAMESPACES and {PREFIX}CLUSTER_WIDE",
        )
    return settings
