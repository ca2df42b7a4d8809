"""Masked language modelling: hide 15 % of the tokens and predict them from the rest (Devlin et al. 2018, section 3.1).

A row of 8 places, of which the masker chose one:

    tokens     [CLS] the [MASK] sat [SEP] [PAD] [PAD] [PAD]     what the model reads
    segments       1   1      1   1     1     0     0     0     piece of text; 0 is padding; attention stays in a piece
    positions      0   1      2   3     4     0     0     0     restart at every piece
    where          2   0                                        predicted places: as many as the rate asks of a full row
    targets      cat [CLS]                                      the tokens that stood there
    weights        1   0                                        0 for an unused place of `where`
    words          1   0                                        weights of alphabetic targets

With `--task.nsp` a row is a pair of sentences (`train.data.pairs`) and has three more fields: types [B,T], next
[B] (0: B follows A, 1: B is random) and pairs [B], 0 for a row that does not count.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from train.data import documents, packing, pairs
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.tokens import PLAIN, DocumentTokens, Segmentation, encode, segmentations
from train.losses.loss import source_sums
from train.losses.teaching import OutputLoss, TokenOutputs
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.mlm.masking import Masker
from train.tasks.mlm.options import Mlm
from train.tasks.mlm.predict import PREDICTOR
from train.tasks.mlm.rows import MaskedRows, SentencePairs, sentences
from train.tasks.record import HfSource, Saved, Task
from train.text import tokenize

# Tokens of the validation text among which a run looks for sentences to show.
_LOOKED_THROUGH = 5_000_000


def specs(run: Run[Mlm]) -> tfm.MaskedLM:
    """The parameters of the run's model."""
    return tfm.masked_lm_specs(run.model, run.task.nsp)


def batch_spec(run: Run[Mlm]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    predicted = {"M": math.ceil(run.task.rate * run.batch.length)}
    spec = {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "segments": Field("BT", np.int32),
        "positions": Field("BT", np.int32),
        "where": Field("BM", np.int32, predicted),
        "targets": Field("BM", np.int32, predicted, predicts="V"),
        "weights": Field("BM", np.float32, predicted, weighs=True),
        "words": Field("BM", np.float32, predicted),
    }
    if run.task.nsp:
        spec |= {
            "types": Field("BT", np.int32),
            "next": Field("B", np.int32),
            "pairs": Field("B", np.float32, weighs=True),
        }
    return spec


def outputs(params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of the predicted tokens of a batch."""
    mask = packing.row_mask(model, batch["segments"])
    hidden = tfm.encoder(params.encoder, model, batch["tokens"], mask, batch["positions"], batch.get("types"), key)
    features = tfm.mlm_features(params.head, model, tfm.take_positions(hidden, batch["where"]))
    return TokenOutputs(hidden, batch["segments"] > 0, features, model, params.output, params.head.bias)


def sums(
    params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs
) -> dict[str, Array]:
    """Sums over the predicted tokens of a batch, float32: `loss` in nats, `weight`, and the parts of the other metrics.

    With next-sentence prediction, `loss` is the mean loss of a token plus the mean loss of a pair, times `weight`; of
    one part of a batch, its share of that.
    """
    total, losses, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], batch["weights"], bias=outputs.bias
    )
    right, weight = hits.astype(jnp.float32), batch["weights"].sum()
    of_tokens = {
        "loss": total,
        "weight": weight,
        "right": (right * batch["weights"]).sum(),
        "words": batch["words"].sum(),
        "right_words": (right * batch["words"]).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weight,
        **source_sums(batch, batch["weights"], losses * batch["weights"]),
    }
    return of_tokens if params.next is None else of_tokens | _next_loss(params, model, batch, outputs.hidden, of_tokens)


def totals(batch: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of all predicted tokens, and of all pairs, which the loss of next sentences is a ratio of."""
    if "pairs" not in batch:
        return {}
    return {"total_tokens": batch["weights"].sum(), "total_pairs": batch["pairs"].sum()}


loss = OutputLoss(outputs, sums, totals, valid="segments")


def _next_loss(
    params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], hidden: Array, sums: Mapping[str, Array]
) -> dict[str, Array]:
    """Sums over the pairs of a batch, and `loss` of tokens and pairs together."""
    logits = tfm.next_sentence(params, model, hidden)
    right = (logits.argmax(-1) == batch["next"]).astype(jnp.float32)
    pairs, sums_of_batch = batch["pairs"].sum(), {**totals(batch), **batch}
    loss_next = (tfm.cross_entropy(logits, batch["next"]) * batch["pairs"]).sum()
    return {
        "pairs": pairs,
        "loss_tokens": sums["loss"],
        "loss_next": loss_next,
        "right_next": (right * batch["pairs"]).sum(),
        "loss": sums["loss"] + loss_next * sums_of_batch["total_tokens"] / jnp.maximum(sums_of_batch["total_pairs"], 1),
    }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity, accuracy on all targets and on alphabetic ones, padding.

    With next-sentence prediction, `loss` is the sum of `loss_tokens` and `loss_next`.
    """
    weight = max(sums["weight"], 1)
    means = {
        "loss": sums["loss"] / weight,
        "perplexity": scores.perplexity(sums.get("loss_tokens", sums["loss"]) / weight),
        "accuracy": sums["right"] / weight,
        "accuracy_words": sums["right_words"] / max(sums["words"], 1),
        "padding": sums["padding"] / weight,
    }
    if "pairs" in sums:
        pairs = max(sums["pairs"], 1)
        means |= {
            "loss_tokens": sums["loss_tokens"] / weight,
            "loss_next": sums["loss_next"] / pairs,
            "accuracy_next": sums["right_next"] / pairs,
        }
    return means


Text = MaskedRows | SentencePairs


def load(run: Run[Mlm], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Text]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    return make_corpus(run, tokenizer, train, valid, log, saved)


def make_corpus(
    run: Run[Mlm],
    tokenizer: Tokenizer,
    train: Sequence[str],
    valid: Sequence[str],
    log: Log,
    saved: Saved | None = None,
) -> Corpus[Text]:
    """Documents as rows: packed text, or sentence pairs."""
    masker, length = Masker.of(run.task, tokenizer), run.batch.length

    def pairs_of(texts: Sequence[str], name: str, segmentation: Segmentation = PLAIN) -> SentencePairs:
        split, document = sentences(texts)
        return SentencePairs(encode(tokenizer, split, log, name, segmentation), document, length, masker)

    def rows(tokens: DocumentTokens) -> MaskedRows:
        return MaskedRows(tokens, length, run.packs_rows, masker)

    train_rows: list[Text]
    if run.task.nsp:
        train_rows = [pairs_of(train, "training text", part) for part in segmentations(run)] if train else []
        valid_rows: Text = pairs_of(valid, "validation text")
    else:
        train_rows = [rows(tokens) for tokens in documents.train_tokens(run, tokenizer, train, log)]
        valid_rows = rows(documents.valid_tokens(tokenizer, valid, log))
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None)
    facts |= documents.rows_by_source(tokenizer, valid, rows)
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size()}, facts)


def baselines(corpus: Corpus[Text]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent validation target; `n`: the number of targets."""
    counts = np.zeros(corpus.processor.get_vocab_size())
    for batch in corpus.valid_batches():
        np.add.at(counts, batch["targets"].ravel(), batch["weights"].ravel())
    return {"majority": float(counts.max() / max(counts.sum(), 1)), "n": int(counts.sum())}


def report(params: tfm.MaskedLM, run: Run[Mlm], corpus: Corpus[Text], log: Log, outcomes: Mapping, folder: Path):
    """Prints validation sentences with hidden words, and the model's guesses; it reads the text around them too."""
    rng = np.random.default_rng(run.seed)
    continues = tokenize.continues_word(corpus.processor)
    for start, end in _sentences(corpus, continues, 5):
        is_word = _single_token_words(corpus.valid.masker, continues, corpus.valid.text.ids[start:end])
        words = start + np.flatnonzero(is_word)
        hidden = np.sort(rng.choice(words, max(2, len(words) // 5), replace=False))
        log.info("\n" + _with_brackets(corpus, continues, start, end, hidden))
        for place, probabilities in zip(hidden, _guess(params, run, corpus, (start, end), hidden), strict=True):
            best = np.argsort(-probabilities)[:4]
            guesses = (f"{_spelled(corpus, token)} {probabilities[token]:.2f}" for token in best)
            log.info(f"{_spelled(corpus, corpus.valid.text.ids[place]):>16} : {'  '.join(guesses)}")


def _sentences(corpus: Corpus[Text], continues: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Start and end of `count` validation sentences of 8 to 24 tokens with at least 6 words of one token each."""
    text, masker = np.asarray(corpus.valid.text.ids[:_LOOKED_THROUGH]), corpus.valid.masker
    stops = np.flatnonzero(text == corpus.processor.token_to_id("."))
    max_tokens = min(24, corpus.run.batch.length - 2)
    spans = [(int(start) + 1, int(end) + 1) for start, end in itertools.pairwise(stops)]
    spans = [(start, end) for start, end in spans if 8 <= end - start <= max_tokens]
    spans = [span for span in spans if _single_token_words(masker, continues, text[slice(*span)]).sum() >= 6]
    return spans[:: max(1, len(spans) // count)][:count]


def _single_token_words(masker: Masker, continues: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """tokens [T] -> bool [T]: alphabetic, and neither continues a word nor is continued by the next token."""
    inner = continues[tokens]
    return masker.alphabetic[tokens] & ~inner & ~np.append(inner[1:], False)


def _with_brackets(corpus: Corpus[Text], continues: np.ndarray, start: int, end: int, hidden: np.ndarray) -> str:
    """The text of tokens `start` to `end`, with brackets around the hidden ones."""
    spelled = ""
    for place in range(start, end):
        token = corpus.valid.text.ids[place]
        piece = _spelled(corpus, token)
        piece = f"[{piece}]" if place in hidden else piece.removeprefix("##")
        spelled += piece if continues[token] else f" {piece}"
    return spelled.strip()


def _spelled(corpus: Corpus[Text], token: int) -> str:
    return corpus.processor.decode([int(token)], skip_special_tokens=False).strip() or "\u00b7"


def _guess(params, run: Run[Mlm], corpus: Corpus[Text], sentence: tuple[int, int], hidden: np.ndarray) -> np.ndarray:
    """The model's probabilities [M,V] of the hidden tokens of a sentence, read in the middle of a full row of text."""
    text, specials = corpus.valid.text.ids, corpus.valid.masker.specials
    (start, end), length = sentence, run.batch.length - 2
    first = int(np.clip(start - (length - (end - start)) // 2, 0, max(0, len(text) - length)))
    tokens, _ = pairs.join([text[first : first + length]], length + 2, specials)
    where = (hidden - first + 1).astype(np.int32)
    tokens[where] = specials.mask
    return np.asarray(_probabilities(params, run.model, tokens[None], where[None]))


@partial(jax.jit, static_argnums=1)
def _probabilities(params, model: tfm.Config, tokens, where):
    return jax.nn.softmax(tfm.masked_lm(params, model, tokens, where), axis=-1)[0]


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    values: dict[str, dict[str, Any]] = {"mlm": {"batch.length": 128}, "pretrain": {"task.nsp": True}}
    return values.get(head, {})


MLM = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "perplexity": min, "accuracy": max, "accuracy_words": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "evaluate --run={folder} --data=YOUR.txt",
        "main --task=classify --init={folder} --data=YOUR.tsv",
        "main --task=mlm --init={folder} --data=YOUR.txt",
    ),
    predictor=PREDICTOR,
    hf_heads=("mlm", "pretrain"),
    hf_tokens={"mask_token": "mask"},
    hf_run_values=hf_run_values,
)
