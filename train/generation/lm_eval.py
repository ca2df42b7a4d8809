"""A language model as lm-evaluation-harness asks it: how probable a continuation is, how probable a text, and what follows a prompt.

The only file that needs its package, `lm_eval`.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

import tfm
from train import UserError, generate
from train.data import feed
from train.data.fields import Field
from train.generation import writer as writing
from train.reporting.console import Log
from train.runs import pretrained
from train.settings import flags
from train.text import tokenizer
from train.training import step

# Names that tasks give to the number of tokens to write, and the number where they give none.
_MOST, _USUAL = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"), 256

# What else of a task's wishes is heard: how to draw a token.
_DRAWING = ("top_k", "top_p", "min_p", "repetition_penalty")

# The fields of a batch that is judged.
_BATCH_SPEC = {
    "tokens": Field("BT", np.int32),
    "where": Field("BM", np.int32),
    "targets": Field("BM", np.int32),
    "weights": Field("BM", np.float32),
}


class Answerer(TemplateLM):
    """The model in a run folder, which reads `batch` texts at a time, on as many devices as divide that.

    It sees so many tokens at a time as a training row had. Before a text stands the mark that every document began with; where it was
    trained on windows, only before one that has no context.
    """

    def __init__(self, folder: str, batch: int = 16, log: Log | None = None):
        super().__init__()
        self.batch, self.log = batch, log or Log()
        devices = jax.devices()
        self.mesh = tfm.make_mesh(devices=devices[: math.gcd(batch, len(devices))])
        self.trained = pretrained.load(folder, self.mesh, self.log.info)
        self.run, self.mark = self.trained.run, tokenizer.specials(self.trained.processor).sep
        self.length = self.run.batch.length
        self.step = step.make_eval_step(_judged, self.run.model)

    @property
    def eot_token_id(self) -> int:
        """The mark."""
        return self.mark

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs) -> list[int]:
        """The tokens of a text, behind the mark unless they shall have none."""
        tokens = self.trained.processor.encode(string, add_special_tokens=False).ids
        bare = self.run.task.windows or add_special_tokens is False or tokens[:1] == [self.mark]
        return tokens if bare else [self.mark, *tokens]

    def _loglikelihood_tokens(self, requests, **kwargs) -> list[tuple[float, bool]]:
        """What `loglikelihood` asks, when it has made tokens of it. Raises UserError for a continuation that is none."""
        for (context, continuation), _, tokens in requests:
            if not tokens:
                text = f"{continuation!r} after {context[-30:]!r}"
                raise UserError(
                    f"a task asks for {text}, which adds no token to it in this run's tokenizer; leave the task out"
                )
        return self._judge([(context or [self.mark], tokens) for _, context, tokens in requests])

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """Log-probability of every whole text, each token given those before it in its window."""
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        return [logprob for logprob, _ in self._judge([([self.mark], text) for text in texts])]

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each prompt."""
        texts, alike = [""] * len(requests), dict[str, list[int]]()
        for number, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        for wishes, numbers in alike.items():
            writer = self._writer(json.loads(wishes))
            most = max(self.length - writer.options.max_new_tokens, self.length // 2)
            prompts = {number: (self.tok_encode(requests[number].args[0]) or [self.mark])[-most:] for number in numbers}
            numbers.sort(key=lambda number: len(prompts[number]))
            for number, (completion,) in zip(
                numbers, writer.write([prompts[number] for number in numbers]), strict=True
            ):
                texts[number] = completion.text
        return texts

    def _writer(self, wishes: Mapping[str, Any]) -> writing.Writer:
        """What writes as a task wishes. Raises UserError for what cannot be."""
        unheard = set(wishes) - {*_MOST, *_DRAWING, "until", "do_sample", "temperature"}
        if unheard:
            self.log.info(f"left out of what a task wishes: {', '.join(sorted(unheard))}")
        until, temperature, drawn = wishes.get("until") or [], wishes.get("temperature"), wishes.get("do_sample")
        drawn = temperature != 0 and (temperature is not None if drawn is None else drawn)
        values = {name: wishes[name] for name in _DRAWING if wishes.get(name) is not None}
        values["max_new_tokens"] = next((int(wishes[name]) for name in _MOST if wishes.get(name)), _USUAL)
        values |= {"run": self.run.out, "batch": self.batch, "temperature": float(temperature or 1) if drawn else 1.0}
        writer = writing.Writer(
            self.trained, flags.build(generate.Options, values), "sample" if drawn else "greedy", True, self.log
        )
        writer.stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
        return writer

    def _judge(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """Of every context and continuation: the log-probability of the latter, and whether it is what greedy writing would give."""
        logprobs, greedy = np.zeros(len(pairs)), np.ones(len(pairs), bool)
        rows = [(number, *row) for number, pair in enumerate(pairs) for row in self._rows(*pair)]
        rows.sort(key=lambda row: (len(row[1]), row[2]), reverse=True)
        with self.log.progress(f"judging {len(rows)} texts", len(rows)) as advance, jax.set_mesh(self.mesh):
            for first in range(0, len(rows), self.batch):
                numbers, texts, counts = zip(*rows[first : first + self.batch], strict=True)
                found = self.step(
                    self.trained.params, feed.to_devices(self._batch(texts, counts), _BATCH_SPEC, self.mesh)
                )
                np.add.at(logprobs, list(numbers), np.asarray(found["logprob"])[: len(numbers)])
                np.logical_and.at(greedy, list(numbers), np.asarray(found["greedy"])[: len(numbers)])
                advance(len(numbers))
        return list(zip(logprobs.tolist(), greedy.tolist(), strict=True))

    def _rows(self, context: list[int], continuation: list[int]) -> Iterator[tuple[list[int], int]]:
        """Texts, and how many of the last tokens to judge: one text, or several windows on a continuation that is too long for one."""
        windows = [(context, continuation)]
        if len(continuation) > self.length:
            windows = list(
                map(
                    make_disjoint_window,
                    get_rolling_token_windows(continuation, context[-1], self.length, context_len=1),
                )
            )
        for before, after in windows:
            if after:
                yield [*before, *after][-self.length - 1 :], len(after)

    def _batch(self, texts: Sequence[list[int]], counts: Sequence[int]) -> dict[str, np.ndarray]:
        """Tokens [B,T], padded on the right, and places [B,M], targets [B,M] and weights [B,M] of what is judged; few T and M occur."""
        length = min(tfm.bucket(max(map(len, texts)) - 1), self.length)
        shapes = {"tokens": length} | dict.fromkeys(
            ("where", "targets", "weights"), min(tfm.bucket(max(counts)), length)
        )
        batch = {
            name: np.zeros((self.batch, size), np.float32 if name == "weights" else np.int32)
            for name, size in shapes.items()
        }
        for b, (text, count) in enumerate(zip(texts, counts, strict=True)):
            size = len(text) - 1
            batch["tokens"][b, :size] = text[:-1]
            batch["where"][b, :count] = np.arange(size - count, size)
            batch["targets"][b, :count] = text[-count:]
            batch["weights"][b, :count] = 1
        return batch


def _judged(
    params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None = None
) -> dict[str, Array]:
    """`logprob` [B] of all targets of a row, and `greedy` [B], whether each is the most probable token; only they meet the vocabulary."""
    hidden = tfm.decoder(params.decoder, model, batch["tokens"])
    logits = tfm.next_logits(params, model, tfm.states_at(hidden, batch["where"]))
    greedy = (logits.argmax(-1) == batch["targets"]) | (batch["weights"] == 0)
    return {
        "logprob": -(tfm.cross_entropy(logits, batch["targets"]) * batch["weights"]).sum(-1),
        "greedy": jnp.all(greedy, -1),
    }
