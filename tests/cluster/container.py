"""What a pod's container is given: environment, files of its volumes, command.

A pod in the sense of this module is its object as the API server returns it; reads of other
objects go through `api`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tests.cluster.api_client import Api

Object = Mapping[str, Any]

DEFAULT_MESSAGE_PATH = "/dev/termination-log"
TOKEN_SECONDS = 3600
"""Life of a projected token that asks for none."""


class NotYet(Exception):
    """The container cannot be made now; `reason` is that of its waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    address: str
    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class Image:
    """What stands in for an image: its ENTRYPOINT and ENV."""

    entrypoint: list[str]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a pod runs."""

    node: Node
    address: str
    directory: Path

    def volume(self, name: str) -> Path:
        return self.directory / "volumes" / name

    @property
    def message_file(self) -> Path:
        return self.directory / "termination-log"


def field(pod: Object, path: str, setting: Setting) -> str:
    """A field as the downward API gives it."""
    known = {
        "status.podIP": setting.address,
        "status.podIPs": setting.address,
        "status.hostIP": setting.node.address,
        "spec.nodeName": setting.node.name,
    }
    if path in known:
        return known[path]
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = (value or {}).get(part)
    if isinstance(value, Mapping):
        return "\n".join(f'{key}="{item}"' for key, item in sorted(value.items()))
    return str(value or "")


def expand(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) by its value where it is known, $$(NAME) as it stands."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        return env.get(match[1], match[0])

    return re.sub(r"\$?\$\(([^)]+)\)", value, text)


# Environment


async def environment(
    pod: Object, container: Object, image: Image, setting: Setting, api: Api
) -> dict[str, str]:
    """Nothing of the kubelet's own but what finds programs; then the image's, then the pod's."""
    host, _, port = api.server.removeprefix("https://").partition(":")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/root"),
        "HOSTNAME": pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }
    paths = {match for text in image.env.values() for match in re.findall(r"\$\(([^)]+)\)", text)}
    fields = {path: field(pod, path, setting) for path in paths if "." in path}
    env |= {name: expand(text, fields | env) for name, text in image.env.items()}
    for source in container.get("envFrom", ()):
        env |= await _all_of(pod, source, api)
    for item in container.get("env", ()):
        value = await _value(pod, container, item, env, setting, api)
        if value is not None:
            env[item["name"]] = value
    return env


async def _all_of(pod: Object, source: Object, api: Api) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        if key in source:
            data = await _data(pod, resource, source[key], api, "CreateContainerConfigError")
            found |= {source.get("prefix", "") + name: raw.decode() for name, raw in data.items()}
    return found


async def _value(
    pod: Object, container: Object, item: Object, env: dict[str, str], setting: Setting, api: Api
) -> str | None:
    source = item.get("valueFrom")
    if source is None:
        return expand(item.get("value", ""), env)
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], setting)
    if "resourceFieldRef" in source:
        return _resource(container, source["resourceFieldRef"], setting.node)
    for key, resource in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if key in source:
            reference = source[key]
            data = await _data(pod, resource, reference, api, "CreateContainerConfigError")
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if not reference.get("optional"):
                raise NotYet(
                    "CreateContainerConfigError",
                    f"couldn't find key {reference['key']} in {_place(pod, resource, reference)}",
                )
    return None


def _resource(container: Object, reference: Object, node: Node) -> str:
    """A request or limit in units of the divisor, rounded up; without a limit, the node's."""
    section, _, resource = reference["resource"].partition(".")
    amount = container.get("resources", {}).get(section, {}).get(resource)
    default = {"cpu": node.cpu, "memory": node.memory}.get(resource, "0")
    divisor = reference.get("divisor", "0")
    unit = quantity(divisor) if divisor not in ("0", 0) else 1
    return str(-int(-quantity(amount or default) // unit))


_SUFFIXES = {
    "": 1, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def quantity(text: str | int | float) -> float:
    """A Kubernetes quantity as a number of bytes or cores."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _SUFFIXES[match[2]]


# Command


def command(container: Object, image: Image, env: Mapping[str, str]) -> list[str]:
    """As Kubernetes combines them: `command` replaces the entry point, `args` follow."""
    words = [*(container.get("command") or image.entrypoint), *container.get("args", ())]
    return [expand(word, env) for word in words]


# Volumes


def mounts(container: Object, setting: Setting) -> list[dict[str, Any]]:
    """Mounts for enter.py: the volumes where the container wants them, and the termination log."""
    found = [
        {
            "source": str(setting.volume(item["name"]) / item.get("subPath", "")),
            "target": item["mountPath"],
            "readOnly": bool(item.get("readOnly")),
        }
        for item in container.get("volumeMounts", ())
    ]
    path = container.get("terminationMessagePath", DEFAULT_MESSAGE_PATH)
    return [*found, {"source": str(setting.message_file), "target": path, "readOnly": False}]


async def write_volumes(pod: Object, setting: Setting, api: Api) -> None:
    for volume in pod["spec"].get("volumes", ()):
        await _write_volume(pod, volume, setting, api)


def token_seconds(pod: Object) -> float:
    """Life of the pod's shortest-lived token; infinite when it has none."""
    tokens = [wanted for _, wanted in _tokens(pod)]
    return min((wanted.get("expirationSeconds", TOKEN_SECONDS) for wanted in tokens), default=inf)


async def renew_tokens(pod: Object, setting: Setting, api: Api) -> None:
    """A new token in the place of each, so that nobody reads half of one."""
    for volume, wanted in _tokens(pod):
        target = setting.volume(volume) / wanted["path"]
        scratch = target.with_name(f"..{target.name}")
        scratch.write_text(await _token(pod, wanted, api))
        scratch.replace(target)


def _tokens(pod: Object) -> Iterator[tuple[str, Object]]:
    """(name of the volume, what is asked for) of each projected token."""
    for volume in pod["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                yield volume["name"], source["serviceAccountToken"]


async def _write_volume(pod: Object, volume: Object, setting: Setting, api: Api) -> None:
    directory = setting.volume(volume["name"])
    if "hostPath" in volume:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if not directory.is_symlink():
            directory.symlink_to(volume["hostPath"]["path"])
        return
    directory.mkdir(parents=True, exist_ok=True)
    for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
        async for path, content in _files(pod, source, setting, api):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


async def _files(pod: Object, source: Object, setting: Setting, api: Api) -> Any:
    """(path, content) of one source of a volume."""
    for key, resource in (("configMap", "configmaps"), ("secret", "secrets")):
        if key in source:
            reference = source[key]
            data = await _data(pod, resource, reference, api, "ContainerCreating")
            for file in _selected(pod, resource, reference, data):
                yield file
    for item in source.get("downwardAPI", {}).get("items", ()):
        yield item["path"], field(pod, item["fieldRef"]["fieldPath"], setting).encode()
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        yield wanted["path"], (await _token(pod, wanted, api)).encode()


def _selected(
    pod: Object, resource: str, reference: Object, data: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    for item in reference.get("items") or [{"key": key, "path": key} for key in data]:
        if item["key"] in data:
            yield item["path"], data[item["key"]]
        elif not reference.get("optional"):
            place = _place(pod, resource, reference)
            raise NotYet("ContainerCreating", f"{place} references non-existent key {item['key']}")


async def _token(pod: Object, wanted: Object, api: Api) -> str:
    """Bound to the pod, so that it ends with it."""
    metadata = pod["metadata"]
    account = pod["spec"].get("serviceAccountName", "default")
    answer = await api.post(
        f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [wanted["audience"]] if wanted.get("audience") else [],
                "expirationSeconds": wanted.get("expirationSeconds", TOKEN_SECONDS),
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        },
    )
    if answer is None:
        raise NotYet("ContainerCreating", f'failed to fetch token: serviceaccount "{account}"')
    return str(answer["status"]["token"])


async def _data(
    pod: Object, resource: str, reference: Object, api: Api, reason: str
) -> dict[str, bytes]:
    """Content of a ConfigMap or Secret; NotYet with `reason` where it is missing and required."""
    name = reference.get("secretName") or reference["name"]
    found = await api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{resource}/{name}")
    if found is None:
        if reference.get("optional"):
            return {}
        raise NotYet(reason, f'{resource.removesuffix("s")} "{name}" not found')
    text, binary = (
        ({}, "data") if resource == "secrets" else (found.get("data") or {}, "binaryData")
    )
    return {key: value.encode() for key, value in text.items()} | {
        key: base64.b64decode(value) for key, value in (found.get(binary) or {}).items()
    }


def _place(pod: Object, resource: str, reference: Object) -> str:
    name = reference.get("secretName") or reference["name"]
    return f"{resource.removesuffix('s')} {pod['metadata']['namespace']}/{name}"
