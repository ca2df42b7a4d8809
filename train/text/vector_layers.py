"""What follows the pooling in a folder of sentence-transformers: Dense, LayerNorm, Normalize and Dropout, in numpy."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from tfm.hf.tensors import Tensors
from tfm.options.choices import Hint, check_object
from tfm.options.json_text import read_object


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf  # takes a twentieth of the start of a command

    return x * (1 + erf(x / 2**0.5)) / 2


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(x)


# Activations of a Dense module by the classes of torch.nn.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "LeakyReLU": lambda x: np.where(x > 0, x, 0.01 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "GELU": _gelu,
    "SiLU": lambda x: x * _sigmoid(x),
    "Sigmoid": _sigmoid,
}


@final
@dataclass(frozen=True)
class Normalize:
    """Vectors of length 1; one of zeros stays as it is."""

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """float32 [N,D] -> float32 [N,D]."""
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def __str__(self):
        return "Normalize"


@final
@dataclass(frozen=True)
class LayerNorm:
    """A norm over the features: scale and bias [D]."""

    scale: np.ndarray
    bias: np.ndarray

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """float32 [N,D] -> float32 [N,D]."""
        _check_width(self, vectors, "dimension", len(self.scale))
        centred = vectors - vectors.mean(1, keepdims=True)
        return centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5) * self.scale + self.bias

    def __str__(self):
        return "LayerNorm"


@final
@dataclass(frozen=True)
class LinearMap:
    """A linear map with an activation.

    kernel: [I,O]; bias: [O]
    activation: a name of ACTIVATIONS
    residual: [I,O], what a second map adds; None: nothing is added
    """

    kernel: np.ndarray
    bias: np.ndarray
    activation: str
    residual: np.ndarray | None = None

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """float32 [N,I] -> float32 [N,O]."""
        _check_width(self, vectors, "in_features", len(self.kernel))
        outputs = ACTIVATIONS[self.activation](vectors @ self.kernel + self.bias)
        return outputs if self.residual is None else outputs + vectors @ self.residual

    def __str__(self):
        return f"Dense {self.kernel.shape[0]} -> {self.kernel.shape[1]} ({self.activation})"


VectorLayer = Normalize | LayerNorm | LinearMap


# What a module reads and writes: the vector of a text, or those of its tokens.
TEXT, TOKENS = "sentence_embedding", "token_embeddings"


def read_layer(kind: str, folder: Path, place: str = TEXT) -> VectorLayer | None:
    """The module of a class, from its folder; None for Dropout, which changes nothing here. Raises ValueError for
    fields that it does not understand, for tensors of other shapes than the fields say, and for a module that reads or
    writes something beside `place`."""
    path = folder / "config.json"
    fields = read_object(path) if path.is_file() else {}
    with naming(kind, folder):
        if kind in ("Dense", "Normalize"):
            absent = {} if place == TEXT else {"module_input_name": TEXT}  # as the library has it
            check_object(f"{path}: ", absent | fields, dict.fromkeys(_PLACES, _VALUES[place]))
            fields = {name: value for name, value in fields.items() if name not in _PLACES}
        return _READERS[kind](path, fields)


@contextmanager
def naming(kind: str, folder: Path) -> Iterator[None]:
    """Adds to a ValueError what modules.json says of the module, which may be what is wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} (modules.json: path={folder.name}, type={kind})") from None


_PLACES = ("module_input_name", "module_output_name")
_VALUES: dict[str, Hint] = {TEXT: Literal["sentence_embedding"] | None, TOKENS: Literal["token_embeddings"] | None}


def _read_normalize(path: Path, fields: Mapping[str, Any]) -> Normalize:
    refuse_unknown(path, fields, ())
    return Normalize()


def _read_dropout(path: Path, fields: Mapping[str, Any]) -> None:
    refuse_unknown(path, fields, ("dropout",))


def _read_layer_norm(path: Path, fields: Mapping[str, Any]) -> LayerNorm:
    refuse_unknown(path, fields, ("dimension",))
    width = _required(path, check_object(f"{path}: ", fields, {"dimension": int}), "dimension")["dimension"]
    tensors = _tensors(path.parent, {"norm.weight": (width,), "norm.bias": (width,)}, {"dimension": width})
    return LayerNorm(tensors["norm.weight"], tensors["norm.bias"])


def _read_dense(path: Path, fields: Mapping[str, Any]) -> LinearMap:
    hints = {"in_features": int, "out_features": int, "bias": bool, "activation_function": str, "use_residual": bool}
    refuse_unknown(path, fields, hints)
    values: dict[str, Any] = {"bias": True, "activation_function": "torch.nn.Tanh", "use_residual": False}
    values |= check_object(f"{path}: ", fields, hints)
    _required(path, values, "in_features", "out_features")
    module, _, activation = str(values["activation_function"]).rpartition(".")
    if activation not in ACTIVATIONS or not module.startswith("torch.nn"):
        raise ValueError(
            f"{path}: activation_function={values['activation_function']} is none of torch.nn's "
            f"{', '.join(ACTIVATIONS)}; such a folder cannot be used"
        )
    inputs, outputs = values["in_features"], values["out_features"]
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    shapes |= {"linear.bias": (outputs,)} if values["bias"] else {}
    projects = values["use_residual"] and inputs != outputs
    shapes |= {"residual.weight": (outputs, inputs)} if projects else {}
    tensors = _tensors(path.parent, shapes, {name: values[name] for name in hints if name != "activation_function"})
    residual = tensors["residual.weight"].T if projects else np.eye(inputs, dtype=np.float32)
    bias = tensors.get("linear.bias", np.zeros(outputs, np.float32))
    return LinearMap(tensors["linear.weight"].T, bias, activation, residual if values["use_residual"] else None)


def _required(path: Path, values: dict[str, Any], *names: str) -> dict[str, Any]:
    """The values. Raises ValueError where one of these names is absent."""
    if missing := [name for name in names if name not in values]:
        raise ValueError(f"{path} has no {missing[0]}; download the folder again")
    return values


_READERS: dict[str, Callable[[Path, Mapping[str, Any]], VectorLayer | None]] = {
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Normalize": _read_normalize,
    "Dropout": _read_dropout,
}

LAYERS = tuple(_READERS)


def refuse_unknown(path: Path, fields: Mapping[str, Any], names: Collection[str]):
    """Raises ValueError for a field that nobody here reads; `__version__` says only who wrote the file."""
    for name in fields:
        if name not in {*names, "__version__"}:
            raise ValueError(f"{path}: {name}={fields[name]!r} is not understood; such a folder cannot be used")


def _tensors(folder: Path, shapes: Mapping[str, tuple[int, ...]], fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of a module, float32. Raises ValueError for other names, and for other shapes than its fields say."""
    tensors = Tensors(folder)
    for name in {**shapes, **tensors}:
        shape = tensors[name].shape if name in tensors else "absent"
        if shape != shapes.get(name, "absent"):
            stated = ", ".join(f"{field}={value}" for field, value in fields.items())
            raise ValueError(
                f"{tensors.files[0]}: {name} is {shape}, and {folder / 'config.json'} says "
                f"{shapes.get(name, 'absent')} ({stated}); download both again"
            )
    return {name: np.array(tensor, np.float32) for name, tensor in tensors.items()}


def _check_width(layer: VectorLayer, vectors: np.ndarray, field: str, width: int):
    """Raises ValueError for vectors of another size than the module reads."""
    if vectors.shape[1] != width:
        raise ValueError(
            f"modules.json: {layer} has {field}={width}, and what stands before it makes {vectors.shape[1]} numbers "
            "(pooling_mode of the folder, or --pool and --layer); correct one of them"
        )
