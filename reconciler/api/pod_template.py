"""The pod template of a catalog: what its owner may set of the pods of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Reference:
    name: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a Job's pods, as in Kubernetes."""

    key: str | None = None
    """The taint's key; None for all keys."""
    operator: str | None = None
    """"Exists" or "Equal"; None for "Equal"."""
    value: str | None = None
    """The taint's value, for "Equal"."""
    effect: str | None = None
    """The taint's effect; None for all effects."""
    toleration_seconds: int | None = None
    """Seconds that the pod stays on a node with a NoExecute taint; None for ever."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Where the pods of a Job may run."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that the pods accept."""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """The affinity in the form that Kubernetes defines."""
    priority_class_name: str | None = None
    """The pods' priority class; None for the cluster's default."""
    image_pull_secrets: tuple[Reference, ...] = ()
    """Secrets with which images are pulled."""


@dataclass(frozen=True, slots=True)
class PodMetadata:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigMapKey:
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class VariableSource:
    config_map_key: Annotated[ConfigMapKey, "configMapKeyRef"]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str | None = None
    value_from: VariableSource | None = None


@dataclass(frozen=True, slots=True)
class PodTemplate:
    spec: PodSpec | None = None
    metadata: PodMetadata | None = None
    env: tuple[Variable, ...] = ()
    ca_bundle: Annotated[ConfigMapKey | None, "caBundle"] = None
