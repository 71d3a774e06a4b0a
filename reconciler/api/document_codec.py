"""Reads validated documents as the values of `documents`, and prints values as documents.

A field's key and quantity come from its annotation. The schema's defaults are filled in.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar

from reconciler.api.documents import (
    DEFAULT_NAMESPACE,
    CatalogSpec,
    Document,
    IcebergCatalog,
    Origin,
    PolicySpec,
    TableLayout,
    TableLayoutPolicy,
    TableLayoutSpec,
)
from reconciler.api.quantities import (
    format_bytes,
    format_decimal,
    format_duration,
    parse_bytes,
    parse_decimal,
    parse_duration,
)
from reconciler.api.schema import CATALOG, POLICY, TABLE_LAYOUT, spec_schema, with_defaults
from reconciler.api.version import API_VERSION

AUTO = "Auto"


def _size_or_auto(value: str | int) -> int | None:
    return None if value == AUTO else parse_bytes(value)


def _format_size_or_auto(value: int | None) -> str:
    return AUTO if value is None else format_bytes(value)


_QUANTITIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (parse_bytes, format_bytes),
    "duration": (parse_duration, format_duration),
    "decimal": (parse_decimal, format_decimal),
    "size": (_size_or_auto, _format_size_or_auto),
}


_CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    POLICY: (TableLayoutPolicy, PolicySpec),
    TABLE_LAYOUT: (TableLayout, TableLayoutSpec),
    CATALOG: (IcebergCatalog, CatalogSpec),
}

T = TypeVar("T")


def from_document(body: Mapping[str, Any], origin: Origin = Origin()) -> Document:
    """Return the typed value of a valid document. Raises KeyError or ValueError on an invalid
    one."""
    outer, inner = _CLASSES[body["kind"]]
    metadata = body["metadata"]
    spec = with_defaults(body["spec"], spec_schema(body["kind"]))
    value: Document = outer(
        name=metadata["name"],
        namespace=metadata.get("namespace") or DEFAULT_NAMESPACE,
        spec=_build(inner, spec),
        created=metadata.get("creationTimestamp") or "",
        origin=origin,
    )
    return value


def to_document(document: Document) -> dict[str, Any]:
    """Return the whole document with its defaults written out, ready for YAML or JSON."""
    metadata = {"name": document.name, "namespace": document.namespace}
    if document.created:
        metadata["creationTimestamp"] = document.created
    return {
        "apiVersion": API_VERSION,
        "kind": type(document).__name__,
        "metadata": metadata,
        "spec": _print(document.spec),
    }


def policy_document(policy: TableLayoutPolicy | PolicySpec) -> dict[str, Any]:
    """Return the spec of a policy as in a document, defaults written out."""
    spec = policy.spec if isinstance(policy, TableLayoutPolicy) else policy
    body: dict[str, Any] = _print(spec)
    return body


Field = tuple[str, str, str, Any]
"""(attribute, key, quantity, type) of one field of a dataclass."""


def document_fields(cls: Any) -> tuple[Field, ...]:
    """Return the fields of one of the dataclasses above, in the order of its document."""
    return _read_fields(cls)


@cache
def _read_fields(cls: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(item.name, hints[item.name]) for item in dataclasses.fields(cls))


def _field(name: str, hint: Any) -> Field:
    if typing.get_origin(hint) is not Annotated:
        return name, camel(name), "", hint
    bare, key, *quantity = typing.get_args(hint)
    return name, key, quantity[0] if quantity else "", bare


def camel(name: str) -> str:
    """Return the name that an attribute has in a document."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _build(cls: type[T], body: Mapping[str, Any]) -> T:
    given = {
        attribute: _QUANTITIES[quantity][0](body[key]) if quantity else _value(hint, body[key])
        for attribute, key, quantity, hint in document_fields(cls)
        if key in body
    }
    return cls(**given)


def _value(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is types.UnionType:  # X | None
        return _value(next(t for t in typing.get_args(hint) if t is not types.NoneType), value)
    if origin is tuple:
        return tuple(_value(typing.get_args(hint)[0], item) for item in value)
    if origin is Mapping:
        return dict(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    return value


@cache
def _given_empty(cls: Any) -> frozenset[str]:
    """Return the lists that mean something when they are empty: they are None when absent."""
    fields = dataclasses.fields(cls)
    return frozenset(item.name for item in fields if item.default is None)


def _print(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        body = {}
        for attribute, key, quantity, _ in document_fields(type(value)):
            item = getattr(value, attribute)
            absent = (item is None and quantity != "size") or (
                item in ((), {}) and attribute not in _given_empty(type(value))
            )
            if not absent:
                body[key] = _QUANTITIES[quantity][1](item) if quantity else _print(item)
        return body
    if isinstance(value, tuple):
        return [_print(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return dict(value) if isinstance(value, Mapping) else value
