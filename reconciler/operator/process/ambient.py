"""Withholds the cloud credentials of the operator's own pod and node from this process.

Otherwise everyone who may write an IcebergCatalog could read with the operator's identity, by
naming a location without keys. The clouds' SDKs read the environment when a client is created, so
it is changed once, before the first catalog is opened.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

REMOVED = frozenset(
    (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
        "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_USERNAME",
        "AZURE_PASSWORD", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_CERTIFICATE_PATH",
        "IDENTITY_ENDPOINT", "MSI_ENDPOINT",
    )
)  # fmt: skip
"""Variables that hold a credential or name the place of one."""

SET = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "NO_GCE_CHECK": "true",
    "GCE_METADATA_HOST": "metadata.invalid",
    "GCE_METADATA_ROOT": "metadata.invalid",
    "GOOGLE_GCLOUD_ADC_PATH_OVERRIDE": os.devnull,
    "CLOUDSDK_CONFIG": os.devnull,
}
"""Variables that keep the SDKs from their default files and from the metadata services."""


def withhold(environ: MutableMapping[str, str]) -> list[str]:
    """Change the environment; return the names of the variables that were removed."""
    found = sorted(REMOVED & environ.keys())
    for name in found:
        del environ[name]
    environ.update(SET)
    return found
