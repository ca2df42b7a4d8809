"""What a run is: nested dataclasses. The docstring of a class explains its fields; it is also the text of `--help`."""

import re
from typing import Generic, Literal, TypeVar

from tfm.config.model import RUNNING_NORMS, Config
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen
from train.settings.distributed import Distributed
from train.settings.limits import MAX_ROWS, MAX_SEED, MAX_STEPS, STEPS
from train.settings.log import Logging
from train.settings.optim import Optim
from train.settings.phases import PhaseSettings
from train.settings.task_options import TaskOptions
from train.settings.teacher import Teacher
from train.settings.text import Data, Tokenizer
from train.settings.tuning import All, Tune

TaskT = TypeVar("TaskT", bound=TaskOptions)


@frozen
class Batch:
    """The batch of one step.

    size: rows, or texts that share rows
    length: tokens a row, or the most that one may have
    accumulate: parts that the batch is cut into, one after the other, to save memory
    tokens: maximum of tokens of a batch, of texts with labels or of pairs (translate); none: a batch has `size` rows
    multiple: the rows of such a batch are a multiple of this
    shapes: the most shapes of such batches; each is compiled
    """

    size: int = 32
    length: int = 128
    accumulate: int = 1
    tokens: int | None = None
    multiple: int = 8
    shapes: int = 14

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, accumulate=1, multiple=1, shapes=1, length=8)
        check_maximum(self, "no batch is as large", size=MAX_ROWS, multiple=MAX_ROWS, length=MAX_ROWS, tokens=1 << 32)
        check_maximum(self, "each shape is a compilation of its own", shapes=1000)
        if self.tokens is not None and self.tokens < self.length:
            raise ValueError(f"tokens={self.tokens} must be at least batch.length={self.length}, or none")
        if self.unit % self.accumulate:
            name = "size" if self.tokens is None else "multiple"
            raise ValueError(f"accumulate={self.accumulate} must divide batch.{name}={self.unit}")

    @property
    def unit(self) -> int:
        """What divides the rows of every batch."""
        return self.size if self.tokens is None else self.multiple


@frozen
class Mesh:
    """How devices are arranged; one size may be -1, the devices that remain.

    data: copies of the model, each with its share of the batch
    fsdp: the same, with parameters and optimizer state cut into as many pieces
    tensor: parts of every layer
    context: parts of every text; each device has some tokens and sees the keys and values of all
    expert: the same as data, with the experts of a layer spread over them
    """

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, data=-1, fsdp=-1, tensor=-1, context=-1, expert=-1)


@frozen
class Cpu:
    """The cores of a CPU that trains.

    keep_awake: auto | true | false: waiting threads of the lowest priority; auto: on virtual machines
    """

    keep_awake: Literal["auto", "true", "false"] = "auto"

    def __post_init__(self):
        check_fields(self)


@frozen
class Attention:
    """How attention is computed in training.

    kernel: auto | einsum | chunked | cudnn | splash | triton | ring: in training alone; none: as --model.kernel says
    """

    kernel: Literal["auto", "einsum", "chunked", "cudnn", "splash", "triton", "ring"] | None = None

    def __post_init__(self):
        check_fields(self)


@frozen
class Checkpoint:
    """What is saved.

    every: steps between checkpoints
    keep: latest checkpoints that stay, beside the best one
    verify: all | sample | none: what is compared with its checksum when a checkpoint of the run is read
    folder: where they are, gs://BUCKET/PATH; by default in the run folder
    """

    every: int = 200
    keep: int = 2
    verify: Literal["all", "sample", "none"] = "all"
    folder: str = ""

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, every=1, keep=1)
        if self.folder and not re.fullmatch(r"gs://[^/\s]+(/[^/\s]+)+/?", self.folder):
            raise ValueError(
                f"folder={self.folder} must be gs://BUCKET/PATH; without it they are in the run folder, which may be a "
                "mounted bucket of another kind"
            )
        check_maximum(self, STEPS, every=MAX_STEPS, keep=MAX_STEPS)


@frozen
class Eval:
    """Validation.

    every: steps between evaluations
    batches: batches of each; none: all of the validation text
    final: evaluate on all of the validation text at the end
    best: the metric by which the best checkpoint is chosen and patience runs out
    patience: evaluations without a better one after which the run ends, with the best weights; none: no early end
    """

    every: int = 200
    batches: int | None = None
    final: bool = True
    best: str = "loss"
    patience: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, every=1, batches=1, patience=1)
        check_maximum(self, STEPS, every=MAX_STEPS, batches=MAX_STEPS, patience=MAX_STEPS)


@frozen
class Run(Generic[TaskT]):
    """Everything that decides a run of a task.

    task: what to train for
    preset: the model's shape and what goes with it
    teacher: what the run learns from a larger model
    tune: what of the model is trained
    init: a run folder whose weights and tokenizer to start from
    init_head: classes | fresh: keep the head of --init where its classes are those of the data, or start a new one
    init_embeddings: a file of word vectors (.vec, .txt or .bin) to start the table of tokens of a new model from
    freeze_embeddings: the table of tokens is not trained
    adapter: a folder of PEFT: low-rank updates to start from, over the weights of --init; none: without
    out: the run folder to make; by default the next free runs/TASK-PRESET-N
    steps: optimizer steps
    phases: recipe.toml of phases with settings of their own, or how many there are
    stop_at: save and end after this step, as an interruption would; none: after the last
    seed: of the initial weights, the order of the data, masks and dropout
    resume: go on with the run in --out, or with the newest one
    """

    task: TaskT
    preset: str = ""
    teacher: Teacher = Teacher()
    tune: Tune = All()
    init: str = ""
    init_head: Literal["classes", "fresh"] = "classes"
    init_embeddings: str = ""
    freeze_embeddings: bool = False
    adapter: str | None = None
    out: str = ""
    steps: int = 1000
    phases: tuple[PhaseSettings, ...] = ()
    stop_at: int | None = None
    seed: int = 0
    resume: bool = False
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    batch: Batch = Batch()
    optim: Optim = Optim()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    log: Logging = Logging()
    mesh: Mesh = Mesh()
    cpu: Cpu = Cpu()
    distributed: Distributed = Distributed()
    attention: Attention = Attention()
    model: Config = Config()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, steps=1, seed=0, stop_at=1)
        check_maximum(self, STEPS, steps=MAX_STEPS)
        check_maximum(self, "seeds have 31 bits", seed=MAX_SEED)
        if self.batch.tokens is not None and not self.task.has_buckets:
            raise ValueError(f"batch.tokens={self.batch.tokens} is not for task={self.task.name}; say --batch.size")
        if self.data.pack and not self.model.reads_packed:
            raise ValueError(
                "data.pack=true needs a model that keeps texts of a row apart; leave it out, or choose another mixer"
            )
        if self.model.dtype == "float16":
            for norm in {tower.norm for tower in self.model.towers} & set(RUNNING_NORMS):
                raise ValueError(
                    f"norm={norm} changes its state with gradients, and float16 scales them; say --model.dtype=bfloat16"
                )
        if self.optim.name == "schedule_free" and (
            self.optim.layer_decay is not None or self.tune.top_layers is not None
        ):
            raise ValueError(
                "optim.name=schedule_free averages what layers of different rates would not reach; leave out "
                "optim.layer_decay and tune.top_layers"
            )
        self.task.check_run(self)
        max_length, length = self.model.max_length, self.row_tokens
        if max_length is not None and length > max_length:
            length, max_length = (tokens - self.model.input.suffix for tokens in (length, max_length))
            raise ValueError(
                f"batch.length={length} is more than model.length={max_length}; add --model.length={length}"
            )

    @property
    def has_dropout(self) -> bool:
        """Whether training draws random numbers for dropout."""
        model = self.model
        return max(model.dropout, model.attn_rate, model.ffn_dropout, model.drop_path, self.tune.dropout) > 0

    @property
    def row_tokens(self) -> int:
        """Tokens of a row, or the most that one may have: batch.length, those that a picture or a sound becomes, or
        both."""
        options = self.model.input
        if options.array_shape is None:
            return (self.model.length if self.task.reads_pictures else self.batch.length) + options.suffix
        return options.max_length(self.model) or 0

    @property
    def decoding_model(self) -> Config:
        """The model as it writes texts: after training with a memory, layers keep as many states."""
        return self.model if self.task.memory is None else self.model.within(self.task.memory)

    @property
    def packs_rows(self) -> bool:
        """Whether several documents share a row."""
        return self.model.reads_packed if self.data.pack is None else self.data.pack
