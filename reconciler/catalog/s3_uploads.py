"""Ends uploads in parts on S3, which no listing of files shows and which cost storage.

Arrow's client writes in parts and has no call that lists or ends the uploads of a process that was
killed; boto3 does (extra "aws"). Its client gets the properties that pyiceberg gives Arrow's, so
that both reach the same place as the same person.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from reconciler.catalog.network import check_properties, current_reach

SCHEMES = ("s3", "s3a", "s3n")
"""Schemes of locations in S3."""
SESSION = "layoutctl"
"""Names the sessions of roles that the catalog names without a name for them."""


def is_installed() -> bool:
    """Whether uploads on S3 can be ended here."""
    return importlib.util.find_spec("boto3") is not None


def on_s3(location: str) -> bool:
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme in SCHEMES


def end_uploads(properties: Mapping[str, Any], prefix: str) -> None:
    """End the uploads below the prefix that nobody completed.

    properties: of the table's FileIO. prefix: "s3://bucket/key". A store that refuses to list or
    to end uploads keeps them until its own rules for incomplete ones apply.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = prefix.partition("://")[2].partition("/")
    with contextlib.suppress(BotoCoreError, ClientError):
        client = _client(properties)
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=f"{key.rstrip('/')}/"):
            for upload in page.get("Uploads", ()):
                client.abort_multipart_upload(
                    Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )


def _client(properties: Mapping[str, Any]) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from pyiceberg.utils.properties import property_as_bool

    reach = current_reach()
    if reach is not None:
        check_properties(reach, properties)
    asked = {name: _first(properties, name) for name in _KEYS}
    virtual = property_as_bool(dict(properties), "s3.force-virtual-addressing", False)
    in_path = bool(properties.get("s3.endpoint")) and not virtual
    proxy = properties.get("s3.proxy-uri")
    config = Config(
        proxies={"http": proxy, "https": proxy} if proxy else None,
        connect_timeout=float(properties.get("s3.connect-timeout", 10)),
        read_timeout=float(properties.get("s3.request-timeout", 60)),
        retries={"mode": "standard", "total_max_attempts": 3},
        s3={"addressing_style": "path" if in_path else "auto"},
    )
    if property_as_bool(dict(properties), "s3.anonymous", False):
        config = config.merge(Config(signature_version=UNSIGNED))
    session = boto3.Session(**{_KEYS[name]: value for name, value in asked.items() if value})
    role = _first(properties, "role-arn")
    if role:
        name = _first(properties, "role-session-name") or SESSION
        answer = session.client("sts").assume_role(RoleArn=role, RoleSessionName=name)
        given = answer["Credentials"]
        session = boto3.Session(
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
            region_name=asked["region"],
        )
    return session.client("s3", endpoint_url=properties.get("s3.endpoint"), config=config)


_KEYS = {
    "access-key-id": "aws_access_key_id",
    "secret-access-key": "aws_secret_access_key",
    "session-token": "aws_session_token",
    "region": "region_name",
}
"""boto3's names of what "s3." and "client." properties say."""


def _first(properties: Mapping[str, Any], name: str) -> str | None:
    """Return the property of S3, else of AWS in general, as pyiceberg reads them."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")
