"""What the distributions (edge, gateway, cloud, tools) share: their version, and what they need.

A hook of hatchling. The version is that of the repository, and the packages are those of its groups, both in
pyproject.toml beside this file; a distribution's own pyproject.toml names the groups and the distributions.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Metadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        project = tomllib.loads((Path(self.root).parent / "pyproject.toml").read_text())["project"]
        groups = project["optional-dependencies"]
        metadata["version"] = project["version"]
        metadata["license"] = project["license"]
        metadata["requires-python"] = project["requires-python"]
        needs = ["%s==%s" % (name, project["version"]) for name in self.config.get("distributions", [])]
        for group in self.config.get("groups", []):
            needs += [line for line in groups[group] if line not in self.config.get("without", [])]
        metadata["dependencies"] = needs
