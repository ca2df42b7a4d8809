"""What transformers makes of a folder, against what is made of it here: ids, scores, greedy texts, vectors, pixels."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train import UserError
from train.generation.greedy_texts import NEW_TOKENS, PROMPTS, greedy_texts, writes_texts
from train.runs import parity, written_files
from train.runs.hf_folder import HfFolder
from train.text.pooled import pooled, unpooled_tokens
from train.text.same_ids import STRINGS

# The tokens of the row whose scores are compared.
_TOKENS = 48

# What may differ, of the largest value: sums are taken in another order.
_TOLERANCE = 1e-3

# A model or a tokenizer of transformers.
TorchModel: TypeAlias = Any
TorchTokenizer: TypeAlias = Any


def reference_differences(path: Path, log) -> dict[str, float]:
    """The largest differences between what transformers computes with a folder and what is computed here.

    Of token ids and texts it is the number of those that differ. Raises UserError where transformers is absent or
    cannot use the folder, and where more differs than rounding.
    """
    if missing := [name for name in ("torch", "transformers") if find_spec(name) is None]:
        raise UserError(
            f"--certify compares with transformers, and {' and '.join(missing)} cannot be imported; install torch, and "
            "pip install 'tfm[parity]'"
        )
    folder = HfFolder(path)
    params = folder.load(log=log.info)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _differences(folder, params)


@contextlib.contextmanager
def _transformers_errors(folder: HfFolder) -> Iterator[None]:
    """Turns what transformers raises into UserError."""
    try:
        yield
    except Exception as error:  # whatever stands in the folder
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"--certify: transformers cannot use {folder.path}: {reason}") from error


def _differences(folder: HfFolder, params: Any) -> dict[str, float]:
    """The differences of all that the folder is for."""
    import transformers

    architecture = next(iter(cast(list[str], folder.fields.get("architectures")) or ()), "AutoModel")
    with _transformers_errors(folder):
        model = getattr(transformers, architecture).from_pretrained(folder.path, dtype="float32").eval()
    differences = {}
    row: np.ndarray | None = None
    if (images := written_files.image_processor(folder.processor)) is not None:
        with _transformers_errors(folder):
            pixels = _reference_pixels(transformers.AutoImageProcessor.from_pretrained(folder.path), images.channels)
        differences["pixels"] = _largest(folder, "pixels", written_files.random_pixels(images), pixels)
        row = pixels[None]
    tokenizer: TorchTokenizer = None
    if (text_tokenizer := folder.task.processor.tokenizer(folder.processor)) is not None:
        with _transformers_errors(folder):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path)
            ids = [tokenizer(text)["input_ids"] for text in STRINGS]
        encoded = [text_tokenizer.encode(text).ids for text in STRINGS]
        differences["token ids"] = _count(folder, "token ids", encoded, ids)
        limit = min(folder.config.model.max_length or _TOKENS, _TOKENS)
        row = np.array([[token for text in ids for token in text][:limit]], np.int32)
    if row is not None and not isinstance(params, tfm.Towers):
        differences |= _output_difference(folder, params, model, row)
    if writes_texts(folder):
        texts = [text.strip() for text in greedy_texts(folder, params)]
        with _transformers_errors(folder):
            written = _written(model, tokenizer, texts)
        differences["greedy texts"] = _count(folder, "greedy texts", texts, written)
    if folder.has_modules and find_spec("sentence_transformers") is not None:
        with _transformers_errors(folder):
            from sentence_transformers import SentenceTransformer  # it may want another version of transformers

            vectors = SentenceTransformer(str(folder.root), device="cpu").encode(list(PROMPTS))
        differences["vectors"] = _largest(folder, "vectors", _vectors(folder, params), vectors)
    return differences


def _reference_pixels(processor: Any, channels: int) -> np.ndarray:
    """What a processor of transformers makes of a random picture: float32 [height, width, channels]."""
    pixels = processor(written_files.random_picture(channels), return_tensors="np")["pixel_values"]
    return np.moveaxis(np.asarray(pixels)[0], 0, -1)


def _output_difference(folder: HfFolder, params: Any, model: TorchModel, row: np.ndarray) -> dict[str, float]:
    """The difference of scores, or of states without a head; {} where both have other forms, as choices have."""
    import torch

    config, inputs = folder.config.model, jnp.asarray(row)
    is_headless = isinstance(params, tfm.Classifier) and params.output is None
    if is_headless:
        computed = jax.jit(tfm.encoder, static_argnums=1)(params.encoder, config, inputs)
    else:
        computed = parity.predicted(config, params, inputs)
    with torch.no_grad(), _transformers_errors(folder):
        outputs = model(**_arguments(model, row))
    names = ("last_hidden_state",) if is_headless else ("logits", "prediction_logits")
    tensors = [outputs[name] for name in names if name in outputs]
    if "start_logits" in outputs:
        tensors = [torch.stack([outputs["start_logits"], outputs["end_logits"]], -1)]
    if "pred_boxes" in outputs:
        tensors = [torch.cat([outputs["logits"], outputs["pred_boxes"]], -1)]
    tensors = [tensor.movedim(1, -1) if computed.ndim == 4 else tensor for tensor in tensors]  # scores of patches
    fitting = [tensor for tensor in tensors if tensor.shape[:-1] == computed.shape[:-1]]
    if not fitting:
        return {}
    return {"output": _largest(folder, "output", computed, fitting[0].numpy()[..., : computed.shape[-1]])}


def _arguments(model: TorchModel, row: np.ndarray) -> Mapping[str, Any]:
    """What a model of transformers is called with for a row of tokens or a picture."""
    import torch

    if row.ndim == 4:
        return {"pixel_values": torch.from_numpy(np.moveaxis(row, -1, 1).copy())}
    tokens = torch.from_numpy(row).long()
    arguments = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = tokens
    if hasattr(model.config, "attention_window"):  # here they are the first ones
        is_global = torch.arange(tokens.shape[1]) < getattr(model.config, "global_tokens", 1)
        arguments["global_attention_mask"] = is_global.long()[None]
    return arguments


def _written(model: TorchModel, tokenizer: TorchTokenizer, texts: Sequence[str]) -> list[str]:
    """What transformers writes greedily; "" where nothing is written here."""
    import torch

    written = []
    for prompt, text in zip(PROMPTS, texts, strict=True):
        if not text:
            written.append("")
            continue
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1)[0]
        start = 0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        written.append(tokenizer.decode(ids[start:], skip_special_tokens=True).strip())
    return written


def _vectors(folder: HfFolder, params: Any) -> np.ndarray:
    """The vectors of the prompts, by the modules of the folder: float32 [N,D]."""
    modules, tokenizer = folder.modules, folder.processor
    read = jax.jit(tfm.encoder, static_argnums=1)
    vectors = []
    for text in PROMPTS:
        tokens = jnp.asarray([tokenizer.encode(modules.prompt_text + text).ids[: modules.length]])
        unpooled = unpooled_tokens(modules, tokenizer, len(folder.text_prefix))
        hidden: Array = read(params.encoder, folder.config.model, tokens)
        vectors.append(np.asarray(pooled(hidden, jnp.ones(tokens.shape, bool), modules.pools, unpooled))[0])
    return modules.apply(np.stack(vectors))


def _count(folder: HfFolder, name: str, computed: Sequence[object], expected: Sequence[object]) -> float:
    """How many are not equal: none, or UserError."""
    different = [pair for pair in zip(computed, expected, strict=True) if pair[0] != pair[1]]
    if different:
        raise UserError(
            f"{folder.path}: {len(different)} of {len(computed)} {name} are not those of transformers, such as "
            f"{str(different[0][0])[:80]!r} for {str(different[0][1])[:80]!r}; please report this folder"
        )
    return 0.0


def _largest(folder: HfFolder, name: str, computed: Any, expected: Any) -> float:
    """The largest difference between arrays. Raises UserError for more than rounding."""
    computed, expected = np.asarray(computed, np.float64), np.asarray(expected, np.float64)
    difference = float(np.abs(computed - expected).max()) if computed.shape == expected.shape else np.inf
    tolerance = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if not difference <= tolerance:
        raise UserError(
            f"{folder.path}: {name} differs by {difference:.1e} from transformers, more than {tolerance:.1e}; please "
            "report this folder"
        )
    return difference
