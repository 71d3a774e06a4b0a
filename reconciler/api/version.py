"""The API group and version of every document that is read, stored or printed."""

from __future__ import annotations

GROUP = "layout.lakehouse.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
