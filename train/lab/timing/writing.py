"""How a model continues texts or translates sentences, to be timed.

A pass writes all texts. A peer begins with the same tokens, has the same batches and the same search.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import jax
import numpy as np

import tfm
from train import UserError
from train.lab.timing import random_task, timing
from train.lab.timing.options import BenchOptions
from train.lab.timing.peers.work import BeamShape, TextShape, TokenBatch
from train.runs.run_folder import open_folder
from train.runs.weights import as_weights
from train.screens.console import Log
from train.tasks.translate import marks, translation

Text = TypeVar("Text")
Answer = TypeVar("Answer")


class PlainModel:
    """A plain language model with random weights, as a folder."""

    def __init__(self, options: BenchOptions):
        self.config = random_task.plain_run(options).model
        self.specs = tfm.causal_lm_specs(self.config)
        self.vocab = self.config.vocab
        self.trained = tfm.init(self.specs, jax.random.key(0))
        is_trained = options.weights == "trained"
        params = self.trained if is_trained else tfm.quantize_weights(self.specs, self.trained)
        self.params = tfm.separate_layers(params, self.config)

    def save(self, to: Path):
        """Writes a folder of transformers."""
        tfm.to_hf(self.config, self.trained, to)


class TrainedModel:
    """The model of a run folder or of a folder of transformers. `PlainModel` has the same members."""

    def __init__(self, options: BenchOptions, writes: str):
        """Raises UserError for a model that does not write what is asked for: continuation, translation, or nothing."""
        self.folder, log = open_folder(options.run), Log()
        if writes != self.folder.task.generates:
            asked = {
                "translation": "translates no sentences; --data needs --task=translate, or --task=classify",
                "continuation": "continues no texts; --generate needs --task=lm",
            }
            raise UserError(
                f"--run={options.run} was trained for --task={self.folder.config.task.name}, which {asked[writes]}"
            )
        self.config = self.folder.config.decoding_model if writes == "continuation" else self.folder.config.model
        self.specs, self.vocab = self.folder.specs, self.folder.processor.get_vocab_size()
        self.trained = self.folder.load(log=log.info)
        self.params = tfm.separate_layers(as_weights(options.weights, self.folder, self.trained, log), self.config)

    def save(self, to: Path):
        """Writes a folder of transformers."""
        params = tfm.merge_low_rank(self.trained)
        self.folder.save_hf(to, self.folder.config.model, params, self.folder.hf_fields())


class Continuations:
    """Greedy texts behind prompts of random tokens."""

    def __init__(self, options: BenchOptions):
        self.model = TrainedModel(options, "continuation") if options.run else PlainModel(options)
        self.max_new_tokens = options.generate
        shape = options.batch, options.length - options.generate
        self.prompts = np.random.default_rng(0).integers(self.model.vocab, size=shape, dtype=np.int32)
        self.tokens: list[list[int]] = []

    def facts(self) -> dict[str, object]:
        """What is written, and how."""
        return {}

    def seconds(self, passes: int) -> list[list[float]]:
        """Of each pass the seconds of the first token, and of all."""
        seconds = []
        for _ in range(passes):
            writer = tfm.Generation(self.model.params, self.model.config, self.prompts.tolist(), self.max_new_tokens)
            start = time.perf_counter()
            writer.advance(1)
            first = time.perf_counter() - start
            writer.advance(self.max_new_tokens)
            seconds.append([first, time.perf_counter() - start])
            self.tokens = writer.tokens
        return seconds

    def work(self) -> TextShape:
        """What a peer needs beside the model."""
        return {"batches": [{"rows": self.prompts.tolist(), "max_new_tokens": self.max_new_tokens}]}

    def alone(self, options: BenchOptions) -> dict[str, float]:
        """The numbers without a peer."""
        return timing.generation(
            self.model.params, self.model.config, self.prompts, options.generate, options.warmup // 3 + 1
        )

    def summary(self, seconds: Sequence[Sequence[float]]) -> dict[str, float]:
        """Milliseconds of the prefill and of a later token, medians over turns."""
        first, total = np.median(seconds, axis=0)
        token = (total - first) / (self.max_new_tokens - 1)
        return {"ms_prefill": round(1e3 * first, 3), "ms_decode": round(1e3 * token, 3)}


class FilePasses(Generic[Text, Answer]):
    """Passes over all texts of a file. `Continuations` has the same members.

    UNIT: what a text is called
    texts: what a pass reads
    tokens: what the last pass returned for each text
    """

    UNIT: str
    texts: Sequence[Text]
    tokens: Sequence[Answer] = ()

    def one_pass(self) -> list[Answer]:
        """What the model says of every text."""
        raise NotImplementedError

    def seconds(self, passes: int) -> list[list[float]]:
        """The seconds of each pass."""
        seconds = []
        for _ in range(passes):
            start = time.perf_counter()
            self.tokens = self.one_pass()
            seconds.append([time.perf_counter() - start])
        return seconds

    def alone(self, options: BenchOptions) -> dict[str, float]:
        """The numbers without a peer."""
        return self.summary(self.seconds(1 + max(1, options.warmup // 3))[1:])

    def summary(self, seconds: Sequence[Sequence[float]]) -> dict[str, float]:
        """Texts a second, the median over turns."""
        return {f"{self.UNIT}_per_s": round(len(self.texts) / float(np.median(seconds)), 2)}


class Translations(FilePasses[list[int], list[int]]):
    """The best translations of the lines of a file by beam search.

    The search is that of transformers: log-probabilities are divided by length ** length_penalty, and it ends where no
    followed text would score higher if it ended now.
    """

    UNIT = "sentences"

    def __init__(self, options: BenchOptions):
        from train.data.sources import files

        self.model = TrainedModel(options, "translation")
        run, processor = self.model.folder.config, self.model.folder.processor
        self.template = marks.template(processor, run.task)
        self.beam = tfm.Beam(options.beams, length_penalty=run.task.length_penalty, offset=0, early_stopping="likely")
        lines = [line for line in files.read_lines(Path(options.data)) if line.strip()]
        encodings = processor.encode_batch(lines, add_special_tokens=False)
        self.texts = [self.template.wrap(encoding.ids) for encoding in encodings]
        limit = self.model.config.max_length
        if limit is not None and max(map(len, self.texts)) > limit:
            raise UserError(f"--data={options.data} has a sentence that exceeds the {limit} positions of the model")
        self.batch = min(options.batch, len(lines))

    def facts(self) -> dict[str, object]:
        """What is translated, and how."""
        return {self.UNIT: len(self.texts), "beams": self.beam.width, "batch": self.batch}

    def one_pass(self) -> list[list[int]]:
        """The tokens of every translation, the shortest source first."""
        config, stop = self.model.config, self.template.suffix[-1:]

        def search(
            model: tfm.CausalLM, starts: Sequence[list[int]], rows: np.ndarray, max_new_tokens: int
        ) -> list[list[int]]:
            groups = tfm.beam_search(model, config, starts, max_new_tokens, self.beam, stop)
            return [group[0].tokens for group in groups]

        batches = translation.Batches.on_device(self.batch)
        decoded = translation.decode_sources(self.model.params, config, self.template, self.texts, batches, search)
        return [tokens for _, tokens in decoded]

    def work(self) -> TextShape:
        """What a peer needs beside the model."""
        batches: list[TokenBatch] = []
        lengths = [translation.padded_length([source]) for source in self.texts]
        for rows, count in translation.batches_of_one_length(lengths, self.batch):
            sources = [self.texts[row] for row in rows[:count]]
            length = translation.padded_length(sources)
            limit = translation.limit_new_tokens(self.model.config, self.template.decoder_prefix, 2 * length)
            batches.append({"rows": sources, "max_new_tokens": limit})
        beam: BeamShape = {"width": self.beam.width, "length_penalty": float(self.beam.length_penalty)}
        return {"batches": batches, "beam": beam, "pad": self.template.pad, "end": self.template.suffix[-1]}
