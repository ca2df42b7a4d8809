"""How a classifier labels the lines of a file, to be timed."""

from train import UserError
from train.lab.timing.options import TRANSLATES, BenchOptions
from train.lab.timing.peers.work import TextShape
from train.lab.timing.writing import FilePasses, TrainedModel
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.screens.console import Log
from train.settings.predict import PredictOptions


def is_classifier(folder: RunFolder | HfFolder) -> bool:
    """Whether a folder's model gives texts labels."""
    return folder.task.hf_heads == ("classify",)


class LabelPasses(FilePasses[dict[str, str], str]):
    """The classes of texts, as train.predict says them: from texts to labels, tokenizing included."""

    UNIT = "texts"

    def __init__(self, options: BenchOptions):
        """Raises UserError for a run that gives texts no single label, and for lines that it does not read."""
        self.model = TrainedModel(options, writes="")
        folder = self.model.folder
        if options.against == TRANSLATES:
            raise UserError(f"--against={TRANSLATES} translates, and --run={options.run} classifies; choose torch")
        if folder.config.task.kind != "single":
            raise UserError(f"--run={options.run} gives a text no single label; choose another run")
        assert folder.task.predictor is not None, "a classifier predicts"
        self.predictor = folder.task.predictor
        queries = PredictOptions(run=options.run, file=options.data)
        self.texts = [text for text in self.predictor.inputs(queries, folder) if any(text.values())]
        self.batch = min(options.batch, len(self.texts))

    def facts(self) -> dict[str, object]:
        """What is read, and how."""
        return {self.UNIT: len(self.texts), "batch": self.batch}

    def one_pass(self) -> list[str]:
        """The label of every text."""
        folder = self.model.folder
        predictions = self.predictor.predict(self.model.params, folder, self.texts, Log(quiet=True), self.batch)
        return [str(prediction.row["label"]) for prediction in predictions]

    def work(self) -> TextShape:
        """What a peer needs beside the model."""
        texts = [list(text.values()) for text in self.texts]
        return {"texts": texts, "batch": self.batch, "length": self.model.folder.config.batch.length}
