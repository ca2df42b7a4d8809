"""What train.bench does with texts, by transformers or CTranslate2: a process that does it when it is told to.

    python -m train.lab.timing.peers.writing_peer '{"folder": "FOLDER", "peer": "torch", "device": "cpu"}'

The folder is one of transformers. Its work.json has `batches` of rows of tokens with `max_new_tokens`, and the options
of a beam search, or none to continue texts greedily; or it has `texts` to label. The process writes a line of JSON when
it is ready, and reads a count of passes a line. It answers with the seconds of each, and the last tokens or labels;
a continuation also has the seconds of its first token. Only this file needs CTranslate2.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import json
import sys
import time
from pathlib import Path

import torch
import transformers

from train.lab.timing.peers.work import TextWork


class TorchContinuations:
    """Greedy texts of a language model."""

    def __init__(self, work: TextWork):
        self.model = _load(transformers.AutoModelForCausalLM, work)
        self.model.generation_config.eos_token_id = None
        self.prompts = torch.tensor(work["batches"][0]["rows"], device=work["device"])
        self.max_new_tokens = work["batches"][0]["max_new_tokens"]
        self.options: dict[str, object] = {"do_sample": False, "num_beams": 1, "pad_token_id": 0}
        if work["peer"] == "torch-compile":
            compilation = transformers.CompileConfig(fullgraph=False)
            compilation._compile_all_devices = True
            self.options |= {"cache_implementation": "static", "compile_config": compilation}

    def write(self) -> tuple[list[float], list[list[int]]]:
        """The seconds of the first token, and of all; and the tokens."""
        seconds = []
        for count in (1, self.max_new_tokens):
            start = time.perf_counter()
            mask = torch.ones_like(self.prompts)
            texts = self.model.generate(self.prompts, attention_mask=mask, max_new_tokens=count, **self.options)
            tokens = texts[:, self.prompts.shape[1] :].tolist()
            seconds.append(time.perf_counter() - start)
        return seconds, tokens


class TorchTranslations:
    """Translations of `MarianMTModel` and its kin."""

    def __init__(self, work: TextWork):
        self.model = _load(transformers.AutoModelForSeq2SeqLM, work)
        self.batches, self.pad, self.end = work["batches"], work["pad"], work["end"]
        beam = work["beam"]
        self.options = {"num_beams": beam["width"], "length_penalty": beam["length_penalty"], "early_stopping": False}

    def write(self) -> tuple[list[float], list[list[int]]]:
        """The seconds of a pass; and the tokens of every translation, without its start and what is behind its end."""
        translations: list[list[int]] = []
        start = time.perf_counter()
        for batch in self.batches:
            longest = max(map(len, batch["rows"]))
            rows = torch.tensor([row + [self.pad] * (longest - len(row)) for row in batch["rows"]])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch["rows"]])
            texts = self.model.generate(
                rows.to(self.model.device),
                attention_mask=mask.to(self.model.device),
                do_sample=False,
                max_new_tokens=batch["max_new_tokens"],
                **self.options,
            )
            translations += [self._until_end(text[1:]) for text in texts.tolist()]
        return [time.perf_counter() - start], translations

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first end; where padding is 0, the search of transformers fills rows with ends."""
        return tokens[: tokens.index(self.end) + 1] if self.end in tokens else tokens


class TorchLabels:
    """Labels of texts by the pipeline of transformers, from texts on."""

    def __init__(self, work: TextWork):
        dtype = getattr(torch, work["dtype"])
        self.pipeline = transformers.pipeline("text-classification", work["folder"], device=work["device"], dtype=dtype)
        self.model = self.pipeline.model
        pairs = [dict(zip(("text", "text_pair"), text, strict=False)) for text in work["texts"]]
        self.texts = [pair if len(pair) == 2 else pair["text"] for pair in pairs]
        self.options = {"batch_size": work["batch"], "truncation": True, "max_length": work["length"]}

    def write(self) -> tuple[list[float], list[str]]:
        """The seconds of a pass; and the label of every text."""
        start = time.perf_counter()
        labels = [answer["label"] for answer in self.pipeline(self.texts, **self.options)]
        return [time.perf_counter() - start], labels


class CTranslate2:
    """Translations of CTranslate2 by the same weights, in float32 or eight bits."""

    def __init__(self, work: TextWork):
        import ctranslate2
        from ctranslate2.converters.transformers import BartLoader

        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(work["folder"])
        # The converter reads these of any model of BART's kind; the tokens stand for their own ids.
        model.config.normalize_before = model.config.normalize_embedding = False
        tokenizer = transformers.AutoTokenizer.from_pretrained(work["folder"])
        with torch.no_grad():
            spec = BartLoader()(model, tokenizer)
            end = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
            for name in ("bos_token", "eos_token", "unk_token"):  # a tokenizer may lack some, and the file needs all
                setattr(spec.config, name, getattr(spec.config, name) or end)
            spec.validate()
            spec.optimize(quantization="int8" if work["weights"] == "int8" else None)
        folder = Path(work["folder"]) / "ctranslate2"
        folder.mkdir()
        spec.save(str(folder))
        self.model, self.tokenizer = model, tokenizer
        self.translator = ctranslate2.Translator(str(folder), work["device"], intra_threads=torch.get_num_threads())
        self.batches, beam = work["batches"], work["beam"]
        self.options = {"beam_size": beam["width"], "length_penalty": beam["length_penalty"]}

    def write(self) -> tuple[list[float], list[list[int]]]:
        """The seconds of a pass; and the tokens of every translation."""
        translations: list[list[int]] = []
        start = time.perf_counter()
        for batch in self.batches:
            rows = [self.tokenizer.convert_ids_to_tokens(row) for row in batch["rows"]]
            texts = self.translator.translate_batch(
                rows, max_decoding_length=batch["max_new_tokens"], return_end_token=True, **self.options
            )
            translations += [self.tokenizer.convert_tokens_to_ids(text.hypotheses[0]) for text in texts]
        return [time.perf_counter() - start], translations


def _load(auto_class, work: TextWork):
    """The model of the folder, in the dtype of our side."""
    model = auto_class.from_pretrained(work["folder"], dtype=getattr(torch, work["dtype"]))
    return model.to(work["device"]).eval()


def _writer(work: TextWork) -> TorchContinuations | TorchTranslations | TorchLabels | CTranslate2:
    """What does this work."""
    if "texts" in work:
        return TorchLabels(work)
    if "beam" not in work:
        return TorchContinuations(work)
    return CTranslate2(work) if work["peer"] == "ctranslate2" else TorchTranslations(work)


def main():
    """Serves until its input ends."""
    work = json.loads(sys.argv[1])
    writer = _writer(work | json.loads((Path(work["folder"]) / "work.json").read_text()))
    params = sum(parameter.numel() for parameter in writer.model.parameters())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({**versions, "params": params, "class": type(writer.model).__name__}), flush=True)
    for line in sys.stdin:
        with torch.inference_mode():
            passes = [writer.write() for _ in range(int(line))]
        print(json.dumps({"seconds": [seconds for seconds, _ in passes], "tokens": passes[-1][1]}), flush=True)


if __name__ == "__main__":
    main()
