"""Writes the generated files of the installation: the chart's CRD templates, then manifests/.

    make manifests                     # or, with HELM=path/to/helm: python -m charts.sync
    python -m charts.sync --crds       # the CRD templates alone, which need no helm

The CRDs are written from crds/, manifests/base from the chart, and the settings page from the code.
Tests compare all of them with the output of this module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "layout-reconciler"
CRDS = ROOT / "crds"
MANIFESTS = ROOT / "manifests"
NAMESPACE = "layout-system"
"""Namespace of manifests/base; an overlay sets another."""

ARGOCD = MANIFESTS / "argocd"
_OPEN, _CLOSE = "{{- if .Values.crds.install }}\n", "{{- end }}\n"
_KEEP = """\
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def crd_templates() -> dict[Path, str]:
    """Path and text of each CRD template: the CRD, switchable, with the keep policy."""
    written = {}
    for source in sorted(CRDS.glob("*.yaml")):
        head, mark, rest = source.read_text().partition("\nspec:\n")
        written[CHART / "templates" / f"crd-{source.name}"] = (
            f"{_OPEN}{head}\n{_KEEP}{mark.lstrip()}{rest}{_CLOSE}"
        )
    return written


def base(helm: str) -> dict[Path, str]:
    """The chart with its defaults, one file per template, and the kustomization that lists them."""
    rendered = subprocess.run(
        [helm, "template", "layout-reconciler", str(CHART), "--namespace", NAMESPACE],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    files = dict(sorted(_by_template(rendered).items()))
    names = "".join(f"- {name}\n" for name in ["namespace.yaml", *files])
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    kustomization = (
        "# Written by `make manifests` from charts/layout-reconciler. Change that, or an overlay.\n"
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{names}"
    )
    files |= {"namespace.yaml": namespace, "kustomization.yaml": kustomization}
    return {MANIFESTS / "base" / name: text for name, text in files.items()}


def _by_template(rendered: str) -> dict[str, str]:
    """`helm template` names the source above each document."""
    files: dict[str, str] = {}
    for document in rendered.split("---\n# Source: ")[1:]:
        source, _, text = document.partition("\n")
        text = text.replace("app.kubernetes.io/managed-by: Helm", _MANAGED).strip() + "\n"
        name = source.rpartition("/")[2]
        files[name] = f"{files[name]}---\n{text}" if name in files else text
    return files


_MANAGED = "app.kubernetes.io/managed-by: kustomize"


def argocd() -> dict[Path, str]:
    """A patch of Argo CD's config map: the one health check, for each of the kinds."""
    lines = [
        "# Written by `make manifests` from the health.lua beside it: kubectl patch configmap",
        "# argocd-cm -n argocd --patch-file manifests/argocd/argocd-cm.yaml",
        "data:",
    ]
    script = [f"    {line}".rstrip() for line in (ARGOCD / "health.lua").read_text().splitlines()]
    for source in sorted(CRDS.glob("*.yaml")):
        spec = yaml.safe_load(source.read_text())["spec"]
        kind = f"{spec['group']}_{spec['names']['kind']}"
        lines += [f"  resource.customizations.health.{kind}: |", *script]
    return {ARGOCD / "argocd-cm.yaml": "\n".join(lines) + "\n"}


def settings_page() -> dict[Path, str]:
    """docs/operations/settings.md: each setting of the operator, as reconciler has it."""
    from reconciler.operator.settings import OPTIONS

    rows = [f"| `{o.variable}` | `{o.flag}` | {o.help} |" for o in OPTIONS]
    text = "\n".join([_SETTINGS_HEAD, *rows]) + "\n"
    return {ROOT / "docs" / "operations" / "settings.md": text}


_SETTINGS_HEAD = """\
# Settings of the operator

<!-- Written by `make manifests` from reconciler/operator/settings.py. -->

The chart sets the variables that its values cover; set others with `extraEnv`. A flag of
`layoutctl operator` takes precedence over its variable. Sizes and durations are written as in
policies (`1Ti`, `10m`).

| Variable | Flag | Meaning |
|---|---|---|"""


def write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: list[str]) -> None:
    write(crd_templates())
    if "--crds" in arguments:
        return
    for stale in (MANIFESTS / "base").glob("*.yaml"):
        stale.unlink()
    write(base(os.environ.get("HELM", "helm")))
    write(argocd())
    write(settings_page())


if __name__ == "__main__":
    main(sys.argv[1:])
