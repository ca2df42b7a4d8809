"""The automatic classes: config.json says which class a folder is of."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfm.compat.outputs import ConfigLike, fields_of
from tfm.compat.pretrained import IGNORED, Pretrained
from tfm.hf.fields import Fields
from tfm.hf.folder import read_config


class ModelType(NamedTuple):
    """A key of `ModelChoices`, which stands for the class of a configuration."""

    model_type: str


class ModelChoices(Mapping[str | ModelType, type[Pretrained]]):
    """Classes by model_type: by its name, or by anything with an attribute model_type, as configurations have."""

    def __init__(self, classes: Mapping[str, type[Pretrained]]):
        self.classes = dict(classes)

    def __getitem__(self, key: object) -> type[Pretrained]:
        return self.classes[str(getattr(key, "model_type", key))]

    def __iter__(self) -> Iterator[ModelType]:
        return map(ModelType, self.classes)

    def __len__(self) -> int:
        return len(self.classes)


class Auto:
    """Chooses the class by the model_type in config.json.

    encoders: of FlaxAutoModel: classes of an encoder alone, by the architecture that such a folder names
    """

    choices: ModelChoices
    encoders: Mapping[str, type[Pretrained]]

    @classmethod
    def _of(cls, fields: Fields) -> type[Pretrained]:
        """The class for a configuration. Raises ValueError where there is none."""
        name = str(fields.get("model_type"))
        if name not in cls.choices:
            raise ValueError(f"{cls.__name__} has no model of type {name}; it has {', '.join(cls.choices.classes)}")
        architecture = next(iter(fields.get("architectures") or ()), "")
        return cls.encoders.get(architecture, cls.choices[name])

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, config: ConfigLike | None = None, subfolder: str = "", **kwargs: Any
    ):
        """The model in a folder, or in a subfolder of it; arguments are those of its class."""
        folder = Path(folder, subfolder)
        fields = fields_of(config) if config is not None else read_config(folder)
        return cls._of(fields).from_pretrained(folder, config=config, **kwargs)

    @classmethod
    def from_config(cls, config: ConfigLike, **kwargs: Any):
        """A new model."""
        kwargs = {name: value for name, value in kwargs.items() if name == "seed" or name not in IGNORED}
        return cls._of(fields_of(config))(config, **kwargs)
