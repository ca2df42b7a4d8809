"""A language model for lm-evaluation-harness: log-probabilities of continuations and texts, and generated text.

The only file that needs its package, `lm_eval`.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import jax
import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

import tfm
from tfm.options.json_text import Json
from train import UserError
from train.data import feed
from train.data.batching import length_sorted_batches
from train.devices.mesh import available_devices
from train.generation.defaults import choose
from train.generation.options import FILTERS, GenerateOptions
from train.generation.writer import ContinuationWriter
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.screens.console import Log
from train.settings import flags
from train.tasks.lm import predict
from train.tasks.lm.predict import Window
from train.text.special import document_marks
from train.training import step

# The names that tasks have for the most tokens to write, and the default.
_MAX_NEW_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_DEFAULT_NEW_TOKENS = 256

# Options of a task that train.generate has too.
_SAMPLING = (*FILTERS, "repetition_penalty")

# Options of a task that have an effect.
_SUPPORTED = {*_MAX_NEW_TOKENS, *_SAMPLING, "until", "do_sample", "temperature"}


# The harness decides everything but the tokens that end a text.
_ALL_FLAGS = {field.name: True for field in dataclasses.fields(GenerateOptions)}


class HarnessModel(TemplateLM):
    """The language model in a folder; it reads `batch` texts at a time, on as many devices as divide that.

    It sees as many tokens at a time as a row in training had. The mark between documents stands before every text, or,
    after training on windows, only before a text without context.
    """

    def __init__(self, folder: RunFolder | HfFolder, batch: int = 16, log: Log | None = None):
        super().__init__()
        self.folder = folder
        self.batch = batch
        self.log = log or Log()
        devices = available_devices()
        self.mesh = tfm.make_mesh(devices=devices[: math.gcd(batch, len(devices))])
        self.params = folder.load(self.mesh, self.log.info)
        self.mark = document_marks(folder.processor).first
        self.length = folder.config.batch.length
        self.step = step.make_eval_step(predict.score, folder.config.model)

    @property
    def eot_token_id(self) -> int:
        """The mark."""
        return self.mark

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs) -> list[int]:
        """The tokens of a text, behind the mark unless it should have none."""
        tokens = self.folder.processor.encode(string, add_special_tokens=False).ids
        bare = self.folder.config.task.windows or add_special_tokens is False or tokens[:1] == [self.mark]
        return tokens if bare else [self.mark, *tokens]

    def _loglikelihood_tokens(self, requests, **kwargs) -> list[tuple[float, bool]]:
        """`loglikelihood` of requests as tokens. Raises UserError for an empty continuation."""
        for (context, continuation), _, tokens in requests:
            if not tokens:
                text = f"{continuation!r} after {context[-30:]!r}"
                raise UserError(
                    f"a task asks for {text}, which adds no token to it in this run's tokenizer; leave the task out"
                )
        return self._loglikelihoods([(context or [self.mark], tokens) for _, context, tokens in requests])

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """Log-probability of every text: of each token after those before it in its window."""
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        return [logprob for logprob, _ in self._loglikelihoods([([self.mark], text) for text in texts])]

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """A completion of each prompt."""
        groups: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(index)
        texts = [""] * len(requests)
        for options, indices in groups.items():
            writer = self._writer(json.loads(options))
            limit = max(self.length - _max_new_tokens(json.loads(options)), self.length // 2)
            prompts = {index: (self.tok_encode(requests[index].args[0]) or [self.mark])[-limit:] for index in indices}
            indices.sort(key=lambda index: len(prompts[index]))
            completions = writer.write([prompts[index] for index in indices])
            for index, (completion,) in zip(indices, completions, strict=True):
                texts[index] = completion.text
        return texts

    def _writer(self, options: Mapping[str, Json]) -> ContinuationWriter:
        """A writer with the options of a task. Raises UserError for values outside their range."""
        unsupported = sorted(set(options) - _SUPPORTED)
        if unsupported:
            self.log.info(f"a task's options without effect here: {', '.join(unsupported)}")
        temperature = cast(float | None, options.get("temperature"))
        sampling = options.get("do_sample")
        if sampling is None:
            sampling = temperature is not None
        sampling = sampling and temperature != 0
        values: dict[str, object] = {name: options[name] for name in _SAMPLING if options.get(name) is not None}
        if values.get("top_k") == 0:  # all tokens, in the words of transformers
            del values["top_k"]
        values |= {"run": str(self.folder.path), "batch": self.batch, "max_new_tokens": _max_new_tokens(options)}
        values |= {"temperature": float(temperature or 1) if sampling else 1.0}
        until = cast(str | list[str], options.get("until") or [])
        stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
        strategy = "sample" if sampling else "greedy"
        choice = choose(self.folder, flags.build(GenerateOptions, values), _ALL_FLAGS, strategy, strategy)
        return ContinuationWriter(self.folder, self.params, choice, self.log, True, stops)

    def _loglikelihoods(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """Log-probability of every continuation after its context, and whether greedy decoding would write it."""
        logprobs = np.zeros(len(pairs))
        greedy = np.ones(len(pairs), bool)
        windows = [window for request, pair in enumerate(pairs) for window in self._windows(request, *pair)]
        sizes = [(len(window.tokens), window.scored) for window in windows]
        with self.log.progress(f"scoring {len(windows)} texts", len(windows)) as advance, jax.set_mesh(self.mesh):
            for rows, count in length_sorted_batches(sizes, self.batch):
                batch = predict.make_batch([windows[row] for row in rows], self.length)
                scores = self.step(self.params, feed.to_devices(batch, predict.BATCH_SPEC, self.mesh))
                requests = [windows[row].text for row in rows[:count]]
                np.add.at(logprobs, requests, np.asarray(scores["logprob"])[:count])
                np.logical_and.at(greedy, requests, np.asarray(scores["greedy"])[:count])
                advance(count)
        return list(zip(logprobs.tolist(), greedy.tolist(), strict=True))

    def _windows(self, request: int, context: list[int], continuation: list[int]) -> Iterator[Window]:
        """The rows of one request: one, or several that divide a continuation that is too long for a row."""
        pairs: Sequence[tuple[list[int], list[int]]] = [(context, continuation)]
        if len(continuation) > self.length:
            rolling = get_rolling_token_windows(continuation, context[-1], self.length, context_len=1)
            pairs = [make_disjoint_window(window) for window in rolling]
        for before, after in pairs:
            if after:
                yield Window(request, [*before, *after][-self.length - 1 :], len(after))


def _max_new_tokens(options: Mapping[str, Json]) -> int:
    """How many tokens the options of a task ask for, by whichever name."""
    limits = (int(cast(int, options[name])) for name in _MAX_NEW_TOKENS if options.get(name))
    return next(limits, _DEFAULT_NEW_TOKENS)
