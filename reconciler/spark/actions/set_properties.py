"""Sets table properties."""

from __future__ import annotations

from typing import Any

from reconciler.plan.actions.set_properties import SetProperties
from reconciler.spark.actions.metadata_change import MetadataExecutor


class PropertiesExecutor(MetadataExecutor[SetProperties]):
    def changed(self, base: Any, action: SetProperties) -> Any:
        wanted = self.run.spark._jvm.java.util.HashMap(base.properties())
        for name, value in action.new:
            wanted.put(name, value)
        return base.replaceProperties(wanted)

    def values(self, metadata: Any, action: SetProperties) -> dict[str, str]:
        now = metadata.properties()
        return {name: str(now.get(name) or "(unset)") for name, _ in action.new}
