"""What a run is: nested dataclasses, each field explained in its class docstring, which is also the text of `--help`."""

import dataclasses
from typing import Annotated, Any

from tfm.config.model import CHOICES, Config
from train.settings.tasks import Classify, Lm, Mlm, Translate, at_least_one, known


@dataclasses.dataclass(frozen=True)
class Data:
    """The text.

    source: training text: builtin | path or glob of .txt .jsonl .tsv .csv, optionally .gz | tfds:NAME[:SPLIT]
    eval: validation text; without it, a tenth of the training text is held out
    field: the column that holds the text; for pairs two of them, joined by a comma
    label: the column that holds the label; for --task.kind=multi also several columns of 0 and 1
    header: the first line of a .tsv or .csv names its columns; if not, the first holds the text and the last the label
    split: what a document of a .txt file is: file | line | blank-line
    pack: several documents share a row (true), or each starts a row of its own (false)
    """

    source: str = "builtin"
    eval: str = ""
    field: str = "text"
    label: str = "label"
    header: bool = True
    split: str = "file"
    pack: bool = True

    def __post_init__(self):
        known(self, split=("file", "line", "blank-line"))


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """How text becomes tokens.

    kind: wordpiece | bpe (of bytes) | unigram | word | char: what to train on the training text
    vocab: number of tokens to train
    lower: lower-case and strip accents (wordpiece, word)
    path: instead of training: tokenizer.json, vocab.txt, a SentencePiece .model, or GPT-2's encoder.json beside vocab.bpe
    dropout: share of merges left out at random when a training text is split (bpe); 0 means none
    draws: random splits of the training text that are made and taken in turn, one an epoch
    """

    kind: str = "wordpiece"
    vocab: int = 8192
    lower: bool = True
    path: str = ""
    dropout: float = 0.0
    draws: int = 4

    def __post_init__(self):
        known(self, kind=("wordpiece", "bpe", "unigram", "word", "char"))
        if self.vocab < 300:
            raise ValueError(f"vocab={self.vocab} must be at least 300, room for single characters")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1; Provilkov et al. use 0.1")
        at_least_one(self, "draws")


@dataclasses.dataclass(frozen=True)
class Batch:
    """The batch of one step.

    size: rows
    length: tokens a row, or the most that one may have
    accumulate: parts that the batch is cut into, one after the other, to save memory
    tokens: instead of a number of rows, the most tokens of a batch, whose rows are of similar lengths (translate); 0 means size rows
    multiple: the rows of such a batch are a multiple of this
    shapes: such batches have at most so many shapes, each of which is compiled
    """

    size: int = 32
    length: int = 128
    accumulate: int = 1
    tokens: int = 0
    multiple: int = 8
    shapes: int = 14

    def __post_init__(self):
        at_least_one(self, "size", "accumulate", "multiple", "shapes")
        if self.length < 8:
            raise ValueError(f"length={self.length} must be at least 8")
        if self.tokens and self.tokens < self.length:
            raise ValueError(f"tokens={self.tokens} must be at least batch.length={self.length}, or 0")
        if self.unit % self.accumulate:
            name = "multiple" if self.tokens else "size"
            raise ValueError(f"accumulate={self.accumulate} must divide batch.{name}={self.unit}")

    @property
    def unit(self) -> int:
        """What divides the rows of every batch."""
        return self.multiple if self.tokens else self.size


@dataclasses.dataclass(frozen=True)
class Optim:
    """The optimizer.

    name: adamw | adafactor | lion | muon: two moments, or one that is factored, or one, or one for matrices and two for the rest
    rate: peak learning rate
    warmup: steps of linear warm-up, or their share of all steps where less than 1
    schedule: linear | cosine | noam (inverse square root) | constant | wsd (warm-up, stable, decay): after the warm-up
    cooldown: steps at the end in which wsd decays, or their share of all steps where less than 1
    moment_dtype: float32 | bfloat16: what moments are stored in
    decay: weight decay of matrices
    clip: largest global norm of the gradient; 0 means no limit
    beta1: decay of the first moment
    beta2: decay of the second moment
    eps: added to the root of the second moment
    ema: decay of a moving average of the weights, which is what is evaluated and used later; 0 means none
    """

    name: str = "adamw"
    rate: float = 1e-3
    warmup: float = 0.1
    schedule: str = "linear"
    cooldown: float = 0.2
    moment_dtype: str = "float32"
    decay: float = 0.01
    clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    ema: float = 0.0

    def __post_init__(self):
        known(self, name=("adamw", "adafactor", "lion", "muon"), moment_dtype=("float32", "bfloat16"))
        known(self, schedule=("linear", "cosine", "noam", "constant", "wsd"))
        for name in ("rate", "warmup", "cooldown", "decay", "clip", "eps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        for name in ("beta1", "beta2", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and less than 1")


@dataclasses.dataclass(frozen=True)
class Mesh:
    """How devices are arranged; one size may be -1, the devices that remain.

    data: copies of the model, each with its share of the batch
    fsdp: the same, with parameters and optimizer state cut into as many pieces
    tensor: parts of every layer
    context: parts of every text; each device has some tokens and sees the keys and values of all
    """

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1


@dataclasses.dataclass(frozen=True)
class Cpu:
    """The cores of a CPU that trains.

    keep_awake: auto | true | false: waiting threads of the lowest priority; auto: on virtual machines
    """

    keep_awake: str = "auto"

    def __post_init__(self):
        known(self, keep_awake=("auto", "true", "false"))


@dataclasses.dataclass(frozen=True)
class Distributed:
    """Several processes, each started with the same flags but its number. SLURM, Open MPI and TPU hosts say all of this themselves, or the
    variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID do.

    coordinator: host:port of process 0 | auto: as JAX finds it
    processes: how many there are
    process: the number of this one, from 0
    timeout: seconds in which they must all have met
    """

    coordinator: str = ""
    processes: int = 0
    process: int = -1
    timeout: int = 60

    def __post_init__(self):
        at_least_one(self, "timeout")
        if self.processes < 0:
            raise ValueError(f"processes={self.processes} must not be negative")


@dataclasses.dataclass(frozen=True)
class Attention:
    """How attention is computed in training.

    kernel: auto | einsum | chunked | cudnn | splash: auto decides by device, sizes and mask
    """

    kernel: str = "auto"

    def __post_init__(self):
        known(self, kernel=CHOICES["kernel"])


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is saved.

    every: steps between checkpoints
    keep: latest checkpoints that stay, beside the best one
    """

    every: int = 200
    keep: int = 2

    def __post_init__(self):
        at_least_one(self, "every", "keep")


@dataclasses.dataclass(frozen=True)
class Eval:
    """Validation.

    every: steps between evaluations
    batches: batches of each; 0 means all of the validation text
    final: evaluate on all of the validation text at the end
    best: the metric by which the best checkpoint is chosen and patience runs out
    patience: evaluations without a better one after which the run ends, with the best weights; 0 means never
    """

    every: int = 200
    batches: int = 0
    final: bool = True
    best: str = "loss"
    patience: int = 0

    def __post_init__(self):
        at_least_one(self, "every")
        if self.batches < 0:
            raise ValueError(f"batches={self.batches} must not be negative; 0 means all")
        if self.patience < 0:
            raise ValueError(f"patience={self.patience} must not be negative; 0 means never to stop early")


@dataclasses.dataclass(frozen=True)
class Log:
    """The log.

    every: steps between lines
    """

    every: int = 20

    def __post_init__(self):
        at_least_one(self, "every")


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that decides a run.

    preset: the model's shape and what goes with it
    init: a run folder whose weights and tokenizer to start from
    out: the run folder to make; by default the next free runs/TASK-PRESET-N
    steps: optimizer steps
    stop_at: save and end after this step, as an interruption would
    seed: of the initial weights, the order of the data, masks and dropout
    resume: go on with the run in --out, or with the newest one
    """

    task: Annotated[Any, Mlm, Lm, Classify, Translate] = dataclasses.field(default_factory=Mlm)
    preset: str = ""
    init: str = ""
    out: str = ""
    steps: int = 1000
    stop_at: int = 0
    seed: int = 0
    resume: bool = False
    data: Data = dataclasses.field(default_factory=Data)
    tokenizer: Tokenizer = dataclasses.field(default_factory=Tokenizer)
    batch: Batch = dataclasses.field(default_factory=Batch)
    optim: Optim = dataclasses.field(default_factory=Optim)
    eval: Eval = dataclasses.field(default_factory=Eval)
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint)
    log: Log = dataclasses.field(default_factory=Log)
    mesh: Mesh = dataclasses.field(default_factory=Mesh)
    cpu: Cpu = dataclasses.field(default_factory=Cpu)
    distributed: Distributed = dataclasses.field(default_factory=Distributed)
    attention: Attention = dataclasses.field(default_factory=Attention)
    model: Config = dataclasses.field(default_factory=Config)

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps={self.steps} must be at least 1")
        if self.stop_at < 0:
            raise ValueError(f"stop-at={self.stop_at} must not be negative")
        if self.eval.best in ("bleu", "chrf") and getattr(self.task, "bleu", 1) == 0:
            raise ValueError(
                f"eval.best={self.eval.best} needs translations to judge; set --task.bleu to a number of sentences"
            )
        if self.batch.tokens and self.task.name != "translate":
            raise ValueError(f"batch.tokens={self.batch.tokens} belongs to --task=translate; say --batch.size")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative")
        if getattr(self.task, "stride", 0) > self.batch.length:
            raise ValueError(
                f"task.stride={self.task.stride} must be at most batch.length={self.batch.length}, or tokens are left out"
            )
        if self.model.position == "learned" and self.batch.length > self.model.length:
            rows = self.batch.length
            raise ValueError(
                f"batch.length={rows} is more than model.length={self.model.length}; add --model.length={rows}"
            )
