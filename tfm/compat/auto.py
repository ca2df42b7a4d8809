"""The automatic classes: config.json says which class a folder is of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfm.compat.outputs import fields_of
from tfm.compat.pretrained import Pretrained
from tfm.hf.folder import read_config


class Auto:
    """Chooses the class by the model_type in config.json."""

    choices: Mapping[str, type[Pretrained]]

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> type[Pretrained]:
        """The class for a configuration. Raises ValueError where there is none."""
        name = str(fields.get("model_type"))
        if name not in cls.choices:
            raise ValueError(f"{cls.__name__} has no model of type {name}; it has {', '.join(cls.choices)}")
        return cls.choices[name]

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, config: Any = None, **kwargs: Any):
        """The model in a folder; arguments are those of its class."""
        fields = fields_of(config) if config is not None else read_config(Path(folder))
        return cls._of(fields).from_pretrained(folder, config=config, **kwargs)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any):
        """A new model."""
        return cls._of(fields_of(config))(config, **kwargs)
