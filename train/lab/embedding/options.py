"""What encodes texts, as flags say it: a folder with a pooling, or a file of word vectors."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tfm.options.choices import check_fields, check_minimum
from train import UserError

# Texts, or pictures of a model that reads both, -> vectors.
Encode = Callable[[Sequence[Any]], np.ndarray]

NO_FLAGS: Mapping[str, object] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class TextEncoderOptions:
    """What encodes texts.

    run: a run folder, or a folder of transformers; several, joined by commas: their vectors are joined
    encoder: in its place, word vectors: bow:FILE, their mean; sif:FILE, rare words weigh more (Arora et al. 2017)
    pool: mean | first | last | max | ends: how the tokens of a text become a vector; ends: of two directions of
        reading, each at its end; none: as the folder or its task has it
    layer: 0 are embeddings, -1 is the last layer; the vectors of several, joined by commas, are joined
    length: tokens of a window; none: as the run was trained, or texts are cut as modules.json says
    prompt: a prompt of the folder by its name, which stands before every text; empty: none; none: the folder's default
    expand: a file of word vectors, through which a run also reads words that are no token (Kiros et al. 2015, section
        2.2)
    """

    run: str = ""
    encoder: str = ""
    pool: Literal["mean", "first", "last", "max", "ends"] | None = None
    layer: str = "-1"
    length: int | None = None
    expand: str = ""
    prompt: str | None = None

    def __post_init__(self):
        check_fields(self)
        if bool(self.run) == bool(self.encoder) and self.makes_vectors:
            raise ValueError("run=FOLDER or --encoder=bow:FILE must say what encodes texts, one of the two")
        kind, _, file = self.encoder.partition(":")
        if self.encoder and (kind not in ("bow", "sif") or not file):
            raise ValueError(f"encoder={self.encoder} must be bow:FILE or sif:FILE, with a file of word vectors")
        if self.expand and self.encoder:
            raise ValueError(f"expand={self.expand} adds words to a run, and --encoder={self.encoder} is none")
        check_minimum(self, length=4)
        if not self.layers:
            raise ValueError(f"layer={self.layer} must be a number, or some with commas between, such as -1,-2")

    @property
    def makes_vectors(self) -> bool:
        """Whether something must encode texts."""
        return True

    @property
    def runs(self) -> list[str]:
        """The folders."""
        return [self.run] if Path(self.run).exists() else self.run.split(",")

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers as numbers; empty where they are none."""
        words = self.layer.split(",")
        if not all(word.strip().removeprefix("-").isdecimal() for word in words):
            return ()
        return tuple(int(word) for word in words)


def open_encoder(
    options: TextEncoderOptions, log, pictures: bool = False, data_flags: Mapping[str, object] = NO_FLAGS
) -> Encode:
    """The function from texts to vectors float32 [N,D] that the options name.

    `pictures` says that it is to read pictures too; of the flags --data.* that of control tokens counts. Raises
    UserError for bad files, and where it cannot.
    """
    if options.encoder and pictures:
        raise UserError(f"--encoder={options.encoder} reads words; name a run of pictures and captions with --run")
    return open_encoders(options, [options.prompt], log, pictures, data_flags)[0]


def open_encoders(
    options: TextEncoderOptions,
    prompts: Sequence[str | None],
    log,
    pictures: bool = False,
    data_flags: Mapping[str, object] = NO_FLAGS,
) -> list[Encode]:
    """What `open_encoder` opens, for each of these prompts in place of that of the options; a folder is read once."""
    if options.encoder:
        from train.lab.embedding.word_vectors import BagOfWords

        kind, _, file = options.encoder.partition(":")
        return [BagOfWords(file, weighted=kind == "sif")] * len(prompts)
    from train.lab.embedding.folder import Pooling
    from train.lab.embedding.towers import folder_encoder

    pooling = Pooling(options.pool, options.layers, options.length, options.expand, prompts[0])
    changes = {name: value for name, value in data_flags.items() if name == "data.control_tokens"}
    encoders = [folder_encoder(path, pooling, log, pictures, changes) for path in options.runs]
    return [_joined([encoder.prompted(prompt) for encoder in encoders]) for prompt in prompts]


def _joined(encoders: Sequence[Encode]) -> Encode:
    return lambda texts: np.concatenate([encode(texts) for encode in encoders], axis=1)


def similarity_of(options: TextEncoderOptions) -> str:
    """How vectors are compared: as the only folder says, or by cosine."""
    from train.runs.hf_folder import HfFolder
    from train.runs.run_folder import open_folder

    folder = open_folder(options.runs[0]) if options.run and len(options.runs) == 1 else None
    return folder.modules.similarity if isinstance(folder, HfFolder) and folder.has_modules else "cosine"


def role_prompts(options: TextEncoderOptions) -> tuple[str | None, str | None]:
    """The names of the prompts of queries and of passages: that of --prompt, or those that the only folder has."""
    from train.runs.run_folder import open_folder
    from train.text.sentence_transformers import ROLES

    if options.prompt is not None or not options.run or len(options.runs) > 1:
        return options.prompt, options.prompt
    prompts = open_folder(options.runs[0]).modules.prompts
    query, passage = (name if name in prompts else None for name in ROLES)
    return query, passage


def checked_vectors(vectors: np.ndarray, count: int) -> np.ndarray:
    """The vectors of `count` texts as float32 [N,D]. Raises UserError where they are not that, or not finite."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or vectors.dtype.kind not in "fiu":
        raise UserError(
            f"the encoder returns {vectors.dtype} {list(vectors.shape)} for {count:,} texts; it must return one vector "
            "of each, float [N,D]"
        )
    if not np.isfinite(vectors).all():
        row = int((~np.isfinite(vectors)).any(1).argmax())
        raise UserError(f"the encoder returns a vector that is not finite for text {row + 1}; look at its weights")
    return vectors.astype(np.float32)
