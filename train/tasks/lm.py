"""Language modelling from left to right: predict every token from those before it (Radford et al. 2018, section 3.1).

Two short documents in a row of 8 places, each with a mark (|) where it begins and where it ends, travel as

    tokens       |  the cat sat   |  on mats [PAD]
    targets     the cat sat  |   on mats  |  [PAD]     the token that comes next
    weights      1   1   1   1    1   1   1    0       0 where nothing is to be predicted, or another row does it
    segments     1   1   1   1    2   2   2    0       document in this row: attention stays inside of it
    positions    0   1   2   3    0   1   2    0       restarted at every document
    bytes                                              one number for the row: the length of the text behind its targets, in UTF-8

With `--task.windows` a row is a window on the text, all documents in a line, and has neither segments nor positions.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train.data.causal import Packed, Windows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.sources import documents
from train.data.tokens import encode, segmentation_hash, segmentations
from train.files import cache
from train.settings.schema import Run
from train.text import tokenizer as tokenize

# Metrics by which a best checkpoint may be chosen, and whether less of them is better.
METRICS = {"loss": min, "perplexity": min, "bits_per_byte": min, "accuracy": max}

# What a run folder keeps beside the weights: how texts become tokens.
PROCESSOR = TOKENIZER

# Commands that make sense after a run.
NEXT_COMMANDS = (
    'generate --run={folder} --prompt="..."',
    "evaluate --run={folder} --data=YOUR.txt",
    "main --task=lm --init={folder} --data=YOUR.txt",
)

# Tokens of the sample that a run ends with.
_SAMPLE = 160


def specs(run: Run) -> tfm.CausalLM:
    """The parameters of the run's model."""
    return tfm.causal_lm_specs(run.model)


def loss(params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the targets of a batch, float32: `loss` in nats, `weight`, and what the other metrics are made of."""
    mask = tfm.segments(batch["segments"]) if "segments" in batch else None
    hidden = tfm.decoder(params.decoder, model, batch["tokens"], mask, batch.get("positions"), key)
    total, _, hits = tfm.vocabulary_loss(
        model, params.output, tfm.lm_features(model, hidden), batch["targets"], batch["weights"], bias=params.bias
    )
    right, weight = hits.astype(jnp.float32), batch["weights"].sum()
    return {
        "loss": total,
        "weight": weight,
        "right": (right * batch["weights"]).sum(),
        "bytes": batch["bytes"].sum(),
        "used": (batch["weights"] > 0).astype(jnp.float32).mean() * weight,
    }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity of a token, bits a byte of text, accuracy, share of places without a target."""
    weight = max(sums["weight"], 1)
    return {
        "loss": sums["loss"] / weight,
        "perplexity": float(np.exp(min(sums["loss"] / weight, 700.0))),
        "bits_per_byte": sums["loss"] / math.log(2) / max(sums["bytes"], 1),
        "accuracy": sums["right"] / weight,
        "padding": 1 - sums["used"] / weight,
    }


def batch_spec(run: Run) -> dict[str, Field]:
    """The fields of a batch, as the top of this file shows them."""
    spec = {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "targets": Field("BT", np.int32),
        "weights": Field("BT", np.float32),
        "bytes": Field("B", np.float32),
    }
    if not run.task.windows:
        spec |= {"segments": Field("BT", np.int32), "positions": Field("BT", np.int32)}
    return spec


Text = Packed | Windows


def load(run: Run, log, saved=None, valid_only: bool = False) -> Corpus[Text]:
    """Text, tokenizer and rows as the run describes them; `saved` is what a run that was there before brings (`train.run.Saved`).

    `valid_only` leaves out the training text where there is a validation text of its own.
    """
    train, valid = documents.load(run.data, run.task.name, valid_only)
    tokenizer = saved.processor if saved else tokenize.load(run.tokenizer, train, log)
    specials, length, task = tokenize.specials(tokenizer), run.batch.length, run.task

    def rows(texts: Sequence[str], what: str, dropout: float = 0.0, draw: int = 0, judging: bool = False) -> Text:
        text = encode(tokenizer, texts, log, what, dropout, draw, mark=specials.sep)
        each = sum(len(document.encode("utf-8", "surrogatepass")) for document in texts) / max(1, text.starts[-1])
        if task.windows or (judging and task.stride):
            stride = task.stride if judging and task.stride else length
            return Windows(text, length, stride, specials.pad, each, across=task.windows, jitter=not judging)
        return Packed(text, length, run.data.pack, specials.pad, each)

    training = [rows(train, "training text", *draw) for draw in segmentations(run)] if train else []
    sizes = {"vocab": tokenizer.get_vocab_size()}
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(train, valid),
        "segmentation_hash": segmentation_hash(run, (layout.text for layout in training)),
    }
    return Corpus(run, tokenizer, training, rows(valid, "validation text", judging=True), sizes, facts)


def baselines(corpus: Corpus[Text]) -> dict[str, float]:
    """`n`: the number of targets in the validation text."""
    return {"n": int(corpus.valid.tokens)}


def report(params, run: Run, corpus: Corpus[Text], log, outcomes: Mapping, folder: Path):
    """Prints how the model goes on from the beginning of the validation text."""
    text = np.asarray(corpus.valid.text.ids[: 1 + min(16, run.batch.length // 2)])
    how = tfm.Sample(temperature=0.8, top_k=50, seed=run.seed)
    found = tfm.generate(params, run.model, [text], _SAMPLE, how, sliding_context=True)
    spell = lambda tokens: corpus.processor.decode([int(token) for token in tokens])
    log.info(
        f"\na sample; what it is given ends at the bar:\n{spell(text)}|{spell([*text, *found.tokens[0]]).removeprefix(spell(text))}\n"
    )


# What train.generate, train.predict and Hugging Face folders ask of this task.
GENERATES = "continuation"
CAN_PREDICT = False
HF_HEADS = ("lm",)
HF_TOKENS = {"eos_token": "sep"}


def hf_run_values(head: str, folder) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {"task.windows": True}  # a text needs no mark before it


def hf_fields(run: Run, tokenizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    mark = tokenize.specials(tokenizer).sep
    return {"bos_token_id": mark, "eos_token_id": mark}


def hf_template(run: Run) -> tuple[str, ...]:
    """How the exported tokenizer marks a text."""
    return ("$A" if run.task.windows else "{sep} $A",)


def text_prefix(run: Run, tokenizer) -> list[int]:
    """The tokens before every document in training."""
    return [] if run.task.windows else [tokenize.specials(tokenizer).sep]
