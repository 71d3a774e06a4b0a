"""A small catalog in a directory, and `layoutctl apply` on it as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: bench}
spec:
  catalogRef: {name: rec}
  tables: {include: ["lake.*"]}
  layout: {clustering: {%s}, files: {%s}}
"""


@dataclass(frozen=True)
class Lake:
    """The catalog "rec" of pyiceberg on SQLite, with tables in the namespace "lake"."""

    directory: Path

    def opened(self) -> Any:
        """Return the catalog, which commands that run in the directory find as well."""
        from pyiceberg.catalog.sql import SqlCatalog

        uri = f"sqlite:///{self.directory}/catalog.db"
        warehouse = f"file://{self.directory}/warehouse"
        (self.directory / "warehouse").mkdir(exist_ok=True)
        (self.directory / ".pyiceberg.yaml").write_text(
            f"catalog:\n  rec:\n    type: sql\n    uri: {uri}\n    warehouse: {warehouse}\n"
        )
        catalog = SqlCatalog("rec", uri=uri, warehouse=warehouse)
        catalog.create_namespace_if_not_exists("lake")
        return catalog

    def applying(self, clustering: str) -> list[str]:
        """Return the command that clusters a table so; the table's name is to follow."""
        (self.directory / "policy.yaml").write_text(POLICY % (clustering, "minInputFiles: 2"))
        command = [sys.executable, "-m", "reconciler.cli.main", "apply", "-f", "policy.yaml"]
        return [*command, "--auto-approve"]

    def run(
        self, command: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the directory. Raises SystemExit if it fails."""
        env = {
            **os.environ, "PYICEBERG_HOME": str(self.directory),
            "LAYOUTCTL_STATE": str(self.directory / "state"), **(environment or {}),
        }  # fmt: skip
        done = subprocess.run(
            command, cwd=self.directory, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{command[:4]} failed:\n{done.stdout}\n{done.stderr[:3000]}")
        return done
