"""Language modelling from left to right: predict every token from those before it (Radford et al. 2018, section 3.1).

Two short documents in a row of 8 places, each with a separator (|) before and after it. Where the folder of --init
names a first token beside it, that token begins a document, and is no target:

    tokens       |  the cat sat   |  on mats [PAD]
    targets     the cat sat  |   on mats  |  [PAD]     the token that comes next
    weights      1   1   1   1    1   1   1    0       0 where there is no target, or another row has it
    segments     1   1   1   1    2   2   2    0       document in this row: attention stays in a document
    positions    0   1   2   3    0   1   2    0       restart at every document
    bytes       18                                     UTF-8 bytes of the text behind the row's targets

With `--task.memory`, a field `continues` [B] says whether a row continues the same row of the batch before.
With `--task.windows` a row is a window on the text, all documents in a line, and has neither segments nor positions.
Validation rows of a folder of transformers are windows on documents as its tokenizer marks them, each by itself.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from train import UserError
from train.data import documents, packing
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.sources import generated
from train.data.tokens import DocumentTokens, TokenizedTexts, encode
from train.losses.loss import source_sums
from train.losses.teaching import OutputLoss, TokenOutputs
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.lm.options import Lm
from train.tasks.lm.predict import PREDICTOR
from train.tasks.lm.rows import PackedRows, WindowRows, count_behind, count_between, marked_windows, tokenizer_windows
from train.tasks.record import TOKENIZER_MARKS, Facts, HfSource, Saved, Task
from train.text import tokenize
from train.text.special import document_marks, made_up_mark

# The longest rows of a model of transformers, unless --length says otherwise.
_LENGTH = 1024

# Tokens of the sample that a run ends with.
_SAMPLE = 160


def specs(run: Run[Lm]) -> tfm.CausalLM:
    """The parameters of the run's model."""
    return tfm.causal_lm_specs(run.model)


def batch_spec(run: Run[Lm]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    spec = {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "targets": Field("BT", np.int32, predicts="V"),
        "weights": Field("BT", np.float32, weighs=True, order=("tokens", 1)),
        "bytes": Field("B", np.float32),
    }
    if run.task.memory is not None:
        spec["continues"] = Field("B", np.bool_)
    if not run.task.windows:
        spec |= {"segments": Field("BT", np.int32), "positions": Field("BT", np.int32)}
    return spec


def outputs(
    params: tfm.CausalLM,
    model: tfm.Config,
    batch: Mapping[str, Any],
    key: Array | None,
    memory: tfm.SegmentMemory | None = None,
) -> TokenOutputs:
    """What the model says of the next tokens of a batch; with a `memory` of the rows before, also that of the next
    rows."""
    valid = None
    if memory is not None:
        continued = dataclasses.replace(memory, lengths=jnp.where(batch["continues"], memory.lengths, 0))
        hidden, memory = tfm.read_segment(params.decoder, model, batch["tokens"], continued, key)
    else:
        mask = packing.row_mask(model, batch["segments"]) if "segments" in batch else None
        valid = batch["segments"] > 0 if "segments" in batch else None
        hidden = tfm.decoder(params.decoder, model, batch["tokens"], mask, batch.get("positions"), key)
    return TokenOutputs(hidden, valid, tfm.lm_features(model, hidden), model, params.output, params.bias, memory)


def sums(params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Any], outputs: TokenOutputs) -> dict[str, Any]:
    """Sums over the targets of a batch, float32: `loss` in nats, `weight`, and the parts of the other metrics.

    With a `memory` of the rows before, the sums have that of the next rows.
    """
    total, losses, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], batch["weights"], bias=outputs.bias
    )
    right, weight = hits.astype(jnp.float32), batch["weights"].sum()
    return {
        "loss": total,
        "weight": weight,
        "right": (right * batch["weights"]).sum(),
        "bytes": batch["bytes"].sum(),
        "used": (batch["weights"] > 0).astype(jnp.float32).mean() * weight,
        **source_sums(batch, batch["weights"], losses * batch["weights"]),
        **({} if outputs.memory is None else {"memory": outputs.memory}),
    }


loss = OutputLoss(outputs, sums, valid="segments")


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity, bits a byte, accuracy, share of places without a target."""
    weight = max(sums["weight"], 1)
    return {
        "loss": sums["loss"] / weight,
        "perplexity": scores.perplexity(sums["loss"] / weight),
        "bits_per_byte": sums["loss"] / math.log(2) / max(sums["bytes"], 1),
        "accuracy": sums["right"] / weight,
        "padding": 1 - sums["used"] / weight,
    }


Text = PackedRows | WindowRows


def load(run: Run[Lm], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Text]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    train_source, valid_source = run.data.source, run.data.eval or run.data.source
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    own_marks = not (saved and saved.facts.get(TOKENIZER_MARKS))
    if own_marks and (fault := made_up_mark(tokenizer)):
        log.info(fault)
    marks = document_marks(tokenizer)
    train_rows = [
        _rows(run, tokenizer, text, train, train_source)
        for text in documents.train_tokens(run, tokenizer, train, log, marks)
    ]
    by_source: dict[str, dict[str, int]] = {}
    if own_marks:

        def rows_of(text: DocumentTokens) -> Text:
            return _rows(run, tokenizer, text, valid, valid_source, validation=True)

        valid_rows = rows_of(documents.valid_tokens(tokenizer, valid, log, marks))
        by_source = documents.rows_by_source(tokenizer, valid, rows_of, marks)
    else:
        prefix = tokenize.prefix_tokens(tokenizer)
        text = encode(tokenizer, valid, log, "validation text", prefix=prefix)
        valid_rows = _windows(run, tokenizer, text, valid, len(prefix))
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None) | by_source
    facts |= documents.text_kept(tokenizer, valid, log)
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size()}, facts)


def _scored(run: Run[Lm], tokenizer: Tokenizer, text: DocumentTokens, source: str) -> DocumentTokens:
    """The text, of which only the answers count where the run or its data mark them. Raises UserError where such a text
    is in a store."""
    task = run.task
    marks = generated.Marks(task.score_from, task.score_to) if task.score_from else generated.marks_of(source)
    if marks is None:
        if task.shots is not None:
            raise UserError(
                f"--shots={task.shots} counts examples, and {source} marks no answers; name --task.score-from"
            )
        return text
    if not isinstance(text, TokenizedTexts):
        raise UserError(
            f"--task.score-from={task.score_from} looks through the text, and {source} is a store; give text"
        )
    if not task.windows:
        generated.check_length(source, int(text.lengths.max(initial=0)), run.batch.length)
    begin, end = (_ids_of(tokenizer, mark) if mark else [] for mark in marks)
    answers = count_between(text, begin, [*end, document_marks(tokenizer).last])
    return answers if task.shots is None else count_behind(answers, task.shots)


def _ids_of(tokenizer: Tokenizer, mark: str) -> list[int]:
    """The tokens that are this text, with or without spaces around it. Raises UserError if there are none."""
    size = tokenizer.get_vocab_size()
    ids = [index for index in range(size) if tokenizer.decode([index], skip_special_tokens=False).strip() == mark]
    if not ids:
        raise UserError(f"{mark!r}, where scores begin or end, is no token of the tokenizer; name another")
    return ids


def _rows(
    run: Run[Lm],
    tokenizer: Tokenizer,
    text: DocumentTokens,
    texts: Sequence[str],
    source: str,
    validation: bool = False,
) -> Text:
    """Encoded documents as rows: windows with --task.windows and for validation with a stride, else packed."""
    pad, length, stride = tokenize.special_tokens(tokenizer).pad, run.batch.length, run.task.stride
    bytes_per_target = documents.num_bytes(texts, text) / max(1, text.num_targets)
    text = _scored(run, tokenizer, text, source)
    if not (run.task.windows or (validation and stride)):
        return PackedRows(text, length, run.packs_rows, pad, bytes_per_target)
    stride = stride if validation and stride else length
    jitter = not validation and run.task.memory is None
    return marked_windows(text, length, stride, pad, bytes_per_target, across=run.task.windows, jitter=jitter)


def _windows(run: Run[Lm], tokenizer: Tokenizer, text: TokenizedTexts, texts: Sequence[str], prefix: int) -> WindowRows:
    """Documents as windows of a model whose tokenizer puts `prefix` tokens before each."""
    targets = int(np.maximum(text.lengths - max(prefix, 1), 0).sum())
    pad = tokenize.special_tokens(tokenizer).pad
    bytes_per_target = documents.num_bytes(texts, text) / max(1, targets)
    text_of_answers = _scored(run, tokenizer, text, run.data.eval or run.data.source)
    return tokenizer_windows(text_of_answers, run.batch.length, run.task.stride, pad, bytes_per_target)


def baselines(corpus: Corpus[Text]) -> dict[str, float]:
    """`n`: the number of validation targets; `text_kept` where the tokenizer loses text."""
    return {"n": corpus.valid.num_targets} | documents.kept_of(corpus.facts())


def report(params: tfm.CausalLM, run: Run[Lm], corpus: Corpus[Text], log: Log, outcomes: Mapping, folder: Path):
    """Prints a sample of the model, which continues the beginning of the validation text."""
    prompt = np.asarray(corpus.valid.text.ids[: 1 + min(16, run.batch.length // 2)]).tolist()
    strategy = tfm.Sample(temperature=0.8, top_k=50, seed=run.seed)
    sample = tfm.generate(params, run.decoding_model, [prompt], _SAMPLE, strategy, sliding_context=True).tokens[0]
    before = corpus.processor.decode(prompt)
    text = corpus.processor.decode([int(token) for token in [*prompt, *sample]])
    log.info(f"\na sample; what it is given ends at the bar:\n{before}|{text.removeprefix(before)}\n")


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {"task.windows": True, "batch.length": _LENGTH}  # a text needs no mark before it


def hf_fields(run: Run[Lm], tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    marks = document_marks(tokenizer)
    return {"bos_token_id": marks.first, "eos_token_id": marks.last}


def hf_template(run: Run[Lm], tokenizer: Any) -> tuple[str, ...]:
    """How the exported tokenizer marks a text."""
    return ("{first} $A" if text_prefix(run, tokenizer) else "$A",)


def text_prefix(run: Run[Lm], tokenizer: Tokenizer) -> list[int]:
    """The tokens before every document in training; a window begins anywhere, unless a document begins otherwise than
    the one before it ended."""
    marks = document_marks(tokenizer)
    return [] if run.task.windows and marks.first == marks.last else [marks.first]


LM = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "perplexity": min, "bits_per_byte": min, "accuracy": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        'generate --run={folder} --prompt="..."',
        "evaluate --run={folder} --data=YOUR.txt",
        "main --task=lm --init={folder} --data=YOUR.txt",
    ),
    generates="continuation",
    predictor=PREDICTOR,
    text_prefix=text_prefix,
    hf_heads=("lm",),
    evaluate_flags=("length",),
    hf_tokens={"bos_token": "first", "eos_token": "last"},
    hf_run_values=hf_run_values,
    hf_fields=hf_fields,
    hf_template=hf_template,
)
