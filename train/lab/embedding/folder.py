"""Texts as vectors by the model of a run folder or a Hugging Face folder: one vector a text, pooled from its tokens."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import final

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.config.positions import AbsolutePosition
from tfm.low_rank import merge_low_rank
from tfm.params import PyTree
from train import UserError
from train.data import packing, windows
from train.data.processors import TOKENIZER
from train.data.reading import TokenTexts, read_texts, say_fallback
from train.data.tokens import TokenizedTexts, in_memory
from train.devices.compiling import jit_reading
from train.lab.embedding.expansion import Expansion
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import NO_CHANGES, RunFolder, open_folder
from train.screens.finite import checked
from train.settings.gate import user_errors
from train.text import control_tokens, special, tokenize
from train.text.pooled import pooled, unpooled_tokens
from train.text.sentence_transformers import Modules
from train.text.transformer_module import length_field

# Places of a batch, about.
_BATCH_TOKENS = 4096


@dataclasses.dataclass(frozen=True)
class Pooling:
    """How the states of tokens become the vector of a text.

    pool: mean | first | last | max | ends, special tokens included; none: as the folder or its task has it
    layers: whose states are pooled, and the vectors joined; 0 are embeddings, 1 the first layer, -1 the last
    length: tokens of a window, special tokens included; none: as the run was trained, or as the model allows
    expand: a file of word vectors, from which words that are no token get an embedding; "": they are cut into tokens
    prompt: the name of a prompt of the folder, which stands before every text; "": none; None: the folder's default
    """

    pool: str | None = None
    layers: tuple[int, ...] = (-1,)
    length: int | None = None
    expand: str = ""
    prompt: str | None = None


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a compiled program depends on beside shapes.

    causal: whether tokens see only those before them
    unpooled: the first tokens, which are read and not pooled
    """

    config: tfm.Config
    causal: bool
    layers: tuple[int, ...]
    pools: tuple[str, ...]
    unpooled: int = 0

    @property
    def dtype(self) -> str:
        """That of products."""
        return self.config.dtype


@final
class FolderEncoder:
    """`encoder(texts)` -> float32 [N,D]. Raises UserError where the folder, its model or a text cannot be used."""

    def __init__(self, path: str, pooling: Pooling, log, changes: Mapping[str, object] = NO_CHANGES):
        folder = open_folder(path, changes)
        if folder.task.processor is not TOKENIZER:
            raise UserError(f"--run={path} holds a model of --task={folder.config.task.name}, which reads no texts")
        if folder.config.task.name == "late":
            raise UserError(
                f"--run={path} makes a vector of each token (--task=late), and not of a text; train.retrieve and "
                "train.embed --index read it"
            )
        self.folder, self.pooling, self.log, self.tokenizer = folder, pooling, log, folder.processor
        config, self.modules = folder.config.model, _modules(folder, pooling)
        self.prefix, self.suffix = text_frame(folder)
        self.control_tokens = folder.config.data.control_tokens
        self.is_cut = self.modules.length is not None and pooling.length is None
        self.window = pooling.length or self.modules.length or folder.window
        if config.max_length is not None and self.window > config.max_length:
            raise UserError(f"--length={self.window} is more than the {config.max_length} tokens that the model reads")
        if self.window <= len(self.prefix) + len(self.suffix):
            field = length_field(folder.path) if self.is_cut else "--length"
            raise UserError(f"{field}={self.window} leaves no place for a text; raise it")
        params = folder.task.final_model(folder.config, merge_low_rank(folder.load(log=log.info)))
        self.params, config, causal = _stack_of(params, config)
        _check_layers(pooling.layers, config)
        self.reading = Reading(config, causal, pooling.layers, self.modules.pools, self._unpooled())
        self.expansion = self._expansion(pooling.expand)
        say_fallback(config, log)
        say_padding(path, self.tokenizer, config, log)
        self._say_modules()

    def prompted(self, prompt: str | None) -> "FolderEncoder":
        """This encoder with another prompt, and its parameters. Raises UserError for one that the folder has not."""
        if prompt == self.pooling.prompt:
            return self
        encoder, pooling = copy.copy(self), dataclasses.replace(self.pooling, prompt=prompt)
        encoder.pooling, encoder.modules = pooling, _modules(self.folder, pooling)
        encoder.reading = dataclasses.replace(self.reading, unpooled=encoder._unpooled())
        encoder._say_modules()
        return encoder

    def _unpooled(self) -> int:
        with control_tokens.reading(self.control_tokens):
            return unpooled_tokens(self.modules, self.tokenizer, len(self.prefix), len(self.suffix))

    def _say_modules(self):
        if self.modules.source:
            self.log.info(f"{self.modules.source}: {self.modules}")

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """One vector of each text; a text of several windows has the mean, the maximum, the first or the last.

        Of a folder of sentence-transformers it is that of the first window, and the modules are applied to it.
        """
        capacity = self.window - len(self.prefix) - len(self.suffix)
        tokens, params = self._tokens([self.modules.prompt_text + text for text in texts])
        sizes = tokens.lengths
        if self.is_cut and (overlong := int((sizes > capacity).sum())):
            self.log.info(f"{overlong:,} of {len(texts):,} texts are cut at {self.window} tokens; --length reads all")
            sizes = np.minimum(sizes, capacity)
        cut = windows.cut(sizes.tolist(), capacity, capacity)
        firsts = tokens.lengths - sizes if special.truncates_left(self.tokenizer) else np.zeros_like(sizes)
        rows = [
            np.concatenate([self.prefix, tokens[text][first + start : first + end], self.suffix]).astype(np.int32)
            for text, start, end, first in zip(*cut, firsts[cut.texts], strict=True)
        ]
        lengths = np.array([len(row) for row in rows])
        if not lengths.all():
            text = int(cut.texts[(lengths == 0).argmax()])
            raise UserError(f"text {text + 1} has no tokens, and the model adds none; leave it out")
        vectors = self._rows(params, rows)
        if len(rows) > len(texts):
            vectors = _merge_windows(vectors, cut.texts, lengths, self.modules.pools)
        with user_errors():
            return self.modules.apply(vectors)

    def _expansion(self, path: str) -> Expansion | None:
        """What makes embeddings of new words. Raises UserError for a model without a table of tokens."""
        if not path:
            return None
        table = getattr(self.params.embed, "tokens", None)
        if table is None:
            raise UserError(f"--expand={path} adds words to a table of tokens, and this model has none; leave it out")
        return Expansion(path, np.asarray(table, np.float32), self.tokenizer)

    def _tokens(self, texts: Sequence[str]) -> tuple[TokenizedTexts, tfm.Encoder]:
        """The tokens of the texts, and the parameters that read them: with a row for each new word."""
        if self.expansion is None:
            with control_tokens.reading(self.control_tokens):
                if said := control_tokens.report(self.tokenizer, texts, "texts"):
                    self.log.info(said)
                return in_memory(self.tokenizer, texts), self.params
        tokens, rows = self.expansion.encode(texts)
        spare = (1 << len(rows).bit_length()) - len(rows)  # few shapes to compile
        tables = self.params.embed
        table = jnp.concatenate([tables.tokens, jnp.pad(rows, ((0, spare), (0, 0))).astype(tables.tokens.dtype)])
        return tokens, dataclasses.replace(self.params, embed=dataclasses.replace(tables, tokens=table))

    def _rows(self, params: tfm.Encoder, rows: Sequence[np.ndarray]) -> np.ndarray:
        """The vector of every row of tokens."""
        texts = TokenTexts(rows, self.window, tokenize.special_tokens(self.tokenizer))
        vectors_of = partial(checked, _vectors, params, self.reading)
        with self.log.progress(f"encoding {len(rows):,} texts", len(rows)) as advance:
            numbers, batch = range(len(rows)), max(1, _BATCH_TOKENS // self.window)
            return read_texts(vectors_of, self.reading.config, texts, numbers, batch, advance)["vectors"]


def text_frame(folder: RunFolder | HfFolder) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text: those of the training, or those that the tokenizer adds."""
    template = folder.text_template
    if not template:
        prefix, _, suffix = tokenize.added_tokens(folder.processor, "a")
        return prefix, suffix
    ids = special.role_ids(folder.processor)
    before, _, after = template[0].partition("$A")
    return [ids[role.strip("{}")] for role in before.split()], [ids[role.strip("{}")] for role in after.split()]


@jit_reading(1)
def _vectors(params: tfm.Encoder, reading: Reading, batch: Mapping[str, Array]) -> dict[str, Array]:
    """A batch of texts (`train.data.text_rows`) -> float32 [B*n,D], D for each layer that is pooled."""
    config, tokens, segments = reading.config, batch["tokens"], batch["segments"]
    mask, positions = packing.row_mask(config, segments), batch["positions"] if config.reads_packed else None
    if set(reading.layers) <= {-1, config.layers}:
        stack = tfm.decoder if reading.causal else tfm.encoder
        states = dict.fromkeys(reading.layers, stack(params, config, tokens, mask, positions))
    else:
        by_layer = tfm.hidden_states(params, config, tokens, mask, positions, causal=reading.causal)
        states = {layer: by_layer[layer] for layer in reading.layers}
    texts = tfm.segment_tokens(segments, len(batch["rows"]) // len(segments))
    vectors = [
        pooled(states[layer], texts, reading.pools, reading.unpooled, batch["positions"]) for layer in reading.layers
    ]
    return {"vectors": jnp.concatenate(vectors, axis=1)}


def _modules(folder: RunFolder | HfFolder, pooling: Pooling) -> Modules:
    """The modules of a folder, with the pooling and the prompt that flags name. Raises UserError for another prompt."""
    modules = folder.modules
    if pooling.pool:
        modules = dataclasses.replace(modules, pools=(pooling.pool,))
    if pooling.prompt and pooling.prompt not in modules.prompts:
        names = ", ".join(modules.prompts) or "none"
        raise UserError(f"--prompt={pooling.prompt} is no prompt of {folder.path}, which has {names}")
    return modules if pooling.prompt is None else dataclasses.replace(modules, prompt=pooling.prompt)


def _stack_of(params: PyTree, config: tfm.Config) -> tuple[tfm.Encoder, tfm.Config, bool]:
    """The part of a model that reads, its configuration, and whether it is a decoder: its encoder, where it has one."""
    if isinstance(params, tfm.Seq2Seq):
        config = tfm.encoder_config(config)
    if hasattr(params, "encoder"):
        return params.encoder, config, config.head.causal
    return params.decoder, config, True


def _check_layers(layers: Sequence[int], config: tfm.Config):
    """Raises UserError for a layer that the model has not."""
    for layer in layers:
        if not -config.layers - 1 <= layer <= config.layers:
            raise UserError(
                f"--layer={layer} is none of the {config.layers} layers of the model; 0 are embeddings, -1 is the last"
            )


def _merge_windows(vectors: np.ndarray, texts: np.ndarray, lengths: np.ndarray, pools: Sequence[str]) -> np.ndarray:
    """Vectors of windows -> those of texts; means are weighted by tokens. Raises UserError for several poolings."""
    if len(pools) > 1 or pools[0] in ("mean_sqrt", "weighted_mean"):
        raise UserError(f"a text has several windows, and {' and '.join(pools)} pools one; leave --length out")
    starts, pool = np.flatnonzero(np.diff(texts, prepend=-1)), pools[0]
    if pool == "mean":
        totals = np.add.reduceat(vectors * lengths[:, None], starts)
        return (totals / np.add.reduceat(lengths, starts)[:, None]).astype(np.float32)
    if pool == "max":
        return np.maximum.reduceat(vectors, starts)
    return vectors[starts if pool == "first" else np.append(starts[1:], len(texts)) - 1]


def say_padding(path: str, tokenizer: special.AnyTokenizer, config: tfm.Config, log):
    """Says where padding before texts would change their positions."""
    if special.pads_left(tokenizer) and isinstance(config.position, AbsolutePosition):
        log.info(
            f"{path}: padding_side=left moves a text beside longer ones to later positions in transformers; here each "
            "begins at the first, as if it were alone"
        )
