"""The content of run.json, and the checksums of its sections."""

import dataclasses
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from train.files import checksum
from train.settings.schema import Run

FORMAT = 3  # of run.json


def describe(run: Run, facts: Mapping[str, object]) -> dict[str, object]:
    """The content of run.json: the resolved configuration, the command, versions, and facts about data and devices."""
    from importlib import metadata

    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tokenizers", "numpy")
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in names}
    sections: dict[str, object] = {"format": FORMAT, "config": dataclasses.asdict(run), "command": " ".join(sys.argv)}
    sections |= {"directory": str(Path.cwd()), "versions": versions, **facts}
    return sections | {"checksums": checksums_of(json.loads(json.dumps(sections)))}


def checksums_of(sections: Mapping[str, object]) -> dict[str, str]:
    """The checksums of the sections of run.json, and of the parts of its configuration, as JSON is read."""
    parts = {name: value for name, value in sections.items() if name not in ("config", "checksums")}
    config = sections.get("config")
    parts |= {f"config.{name}": value for name, value in config.items()} if isinstance(config, dict) else {}
    texts = {name: json.dumps(value, sort_keys=True) for name, value in parts.items()}
    return {name: checksum.of_bytes(text.encode()) for name, text in texts.items()}
