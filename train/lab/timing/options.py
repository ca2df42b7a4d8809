"""The options of train.bench."""

import dataclasses

from tfm.options.choices import check_fields, check_maximum
from train.settings.limits import MAX_BEAMS, MAX_ROWS, MAX_STEPS, STEPS
from train.settings.predict import Weights

# The peers of --against, and that of translations.
PEERS = ("torch", "torch-compile", "ctranslate2")
TRANSLATES = "ctranslate2"

# Models of pictures; the others read texts.
PICTURES = ("vit", "swin")


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """What to time.

    preset: instead of a plain model: a preset of train.main, with its real data
    model: bert | gpt | seq2seq: an encoder, the same with a causal mask, or both, of `layers` each; t5: both, as T5 has
        them; vit | swin: a classifier of pictures
    layers: number of blocks; swin has stages of two blocks, at most four, the third of which has all the rest
    heads: attention heads, of swin those of its first stage
    width: size of the residual stream, likewise
    ffn: size of the feed-forward layer; by default 4 * width
    vocab: number of tokens
    batch: rows
    length: tokens a row
    target: tokens of a target of t5; by default `length`
    dropout: rate on embeddings, attention weights and sublayer outputs
    size: pixels of a side of a picture
    patch: pixels of a side of a patch
    window: patches of a side of a window of swin
    dtype: float32 | bfloat16
    mixer: how tokens learn of each other: a mixer and its options, softmax:pattern=sliding; several, joined by commas,
        are timed in turns, or with --lengths one after the other
    position: how the model knows where a token stands, likewise
    lengths: instead of one length several, joined by commas
    plot: the picture of --lengths
    kernel: auto | einsum | chunked | cudnn | splash | triton: how attention is computed
    steps: timed steps
    warmup: steps before them
    scan: one compiled block for all layers
    predict: share of positions that meet the vocabulary; 1 is a plain cross entropy, 0.15 is masked language modelling
    generate: instead of training steps: tokens to add greedily to `batch` prompts, which are the rest of `length`
    run: the folder of a model, instead of a plain one: with --generate a language model; with --data a translator, or a
        classifier
    data: a file of sentences, one a line, that --run translates or classifies, `batch` at a time
    beams: texts that the search of a translation follows
    weights: trained | int8: what our side writes with; the peer of PyTorch keeps float32
    against: torch | torch-compile | ctranslate2: also time the same work there, in turns; print the ratio peer / tfm
    group: the peer's batches of --task=classify hold texts of similar lengths
    profile: also record a few steps in this folder, and print the ten operations that took most
    """

    preset: str = ""
    model: str = "bert"
    layers: int = 4
    heads: int = 4
    width: int = 128
    ffn: int | None = None
    vocab: int = 8192
    batch: int = 12
    length: int = 64
    target: int | None = None
    dropout: float = 0.0
    size: int = 32
    patch: int = 4
    window: int = 4
    dtype: str = "float32"
    mixer: str = "softmax"
    position: str = "learned"
    lengths: str = ""
    plot: str = "lengths.png"
    kernel: str = "auto"
    steps: int = 60
    warmup: int = 10
    scan: bool = False
    predict: float = 1.0
    generate: int = 0
    run: str = ""
    data: str = ""
    beams: int = 5
    weights: Weights = "trained"
    against: str = ""
    group: bool = False
    profile: str = ""

    def __post_init__(self):
        if self.model not in ("bert", "gpt", "seq2seq", "t5", *PICTURES):
            raise ValueError(f"model={self.model} must be bert, gpt, seq2seq, t5, vit or swin")
        check_fields(self)
        self._check_pictures()
        self._check_writing()
        if min(self.batch, self.length, self.steps, self.warmup) < 1:
            raise ValueError("batch, length, steps and warmup must be at least 1")
        check_maximum(self, "no batch is as large", batch=MAX_ROWS, length=MAX_ROWS)
        check_maximum(self, "no search follows as many", beams=MAX_BEAMS)
        check_maximum(self, STEPS, steps=MAX_STEPS, warmup=MAX_STEPS)
        if self.lengths and (self.generate or self.profile):
            raise ValueError(f"lengths={self.lengths} is for training steps; leave --generate and --profile out")
        self._check_variants()
        self._check_peer()
        if not 0 < self.predict <= 1:
            raise ValueError(f"predict={self.predict} must be above 0 and at most 1")

    @property
    def variants(self) -> list[dict[str, str]]:
        """The mixers and positions to time, each mixer with each position."""
        return [
            {"mixer": mixer, "position": position}
            for mixer in self.mixer.split(",")
            for position in self.position.split(",")
        ]

    @property
    def writes(self) -> bool:
        """Whether texts are written, instead of training steps."""
        return bool(self.generate or self.data)

    @property
    def reads_pictures(self) -> bool:
        """Whether the model classifies pictures."""
        return self.model in PICTURES

    @property
    def folder_model(self) -> str | None:
        """The kind of a plain model whose peer is a class of transformers (`peers.folder_batches`)."""
        return "image" if self.reads_pictures else "seq2seq" if self.model == "t5" else None

    def _check_pictures(self):
        """Raises ValueError for options of texts with a model of pictures, and the other way round."""
        changed = {field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default}

        def refuse(names: tuple[str, ...], reason: str):
            for name in names:
                if name in changed:
                    raise ValueError(f"{name}={getattr(self, name)} {reason}")

        if not self.reads_pictures:
            refuse(("size", "patch", "window"), "is for pictures; add --model=vit or --model=swin")
            if self.model == "t5":
                refuse(("mixer", "position", "generate"), "is not for model=t5; try --model=seq2seq")
            else:
                refuse(("target",), "is for model=t5; leave it out")
            return
        of_texts = ("length", "target", "vocab", "predict", "lengths", "generate", "run")
        refuse(of_texts, f"is for texts; model={self.model} has --size and --patch")
        if self.model == "vit":
            refuse(("window",), "is for model=swin; leave it out")
            return
        refuse(("mixer", "position"), "is not for model=swin, which has windows; try --model=vit")
        if self.layers < 2 or self.layers % 2:
            raise ValueError(f"layers={self.layers} must be even for model=swin, whose windows shift in turn; try 4")

    def _check_writing(self):
        """Raises ValueError for options of writing that do not go together."""
        if self.generate and not ((self.model == "gpt" or self.run) and 10 <= self.generate < self.length):
            raise ValueError(
                f"generate={self.generate} needs --model=gpt, "
                f"and must be at least 10 and less than --length={self.length}"
            )
        if self.writes and self.profile:
            raise ValueError(f"profile={self.profile} is for training steps; leave --generate and --data out")
        if self.run and not self.writes:
            raise ValueError(f"run={self.run} needs --generate=N, or --data=FILE of sentences to translate or classify")
        if self.data and not self.run:
            raise ValueError(f"data={self.data} is read by a model; name its folder with --run")
        if self.data and self.generate:
            raise ValueError(
                f"generate={self.generate} continues texts, and --data has sentences; leave out one of them"
            )
        if self.weights != "trained" and not self.writes:
            raise ValueError(f"weights={self.weights} is for writing; add --generate=N")

    def _check_variants(self):
        """Raises ValueError for several variants where one can be timed, and for one that is there twice."""
        variants = [variant.values() for variant in self.variants]
        several = f"mixer={self.mixer} position={self.position}"
        if len(variants) > 1 and (self.writes or self.against or self.profile):
            raise ValueError(f"{several} are timed in turns; leave --generate, --data, --against and --profile out")
        if "," in self.position and self.lengths:
            raise ValueError(f"position={self.position} with --lengths must be a single one; choose it")
        if len({tuple(variant) for variant in variants}) < len(variants):
            raise ValueError(f"{several} name a variant twice; leave one out")

    def _check_peer(self):
        """Raises ValueError for a peer that does not do this work."""
        if self.against not in ("", *PEERS):
            raise ValueError(f"against={self.against} must be {' or '.join(PEERS)}")
        if self.against and (self.lengths or self.predict < 1):
            raise ValueError(f"against={self.against} is for work of a plain model; leave out lengths and predict")
        if self.group and not (self.against and self.preset):
            raise ValueError("group=true is for a peer of --preset=NAME --task=classify; leave it out")
        if self.against == TRANSLATES and not self.data:
            raise ValueError(f"against={TRANSLATES} translates; add --run=FOLDER --data=FILE, or choose torch")
        if self.against == "torch-compile" and self.data:
            raise ValueError("against=torch-compile reads no files; choose torch or ctranslate2")
