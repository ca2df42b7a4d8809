"""What is said in sounds, as train.predict says it."""

from collections.abc import Iterator, Sequence

import tfm
from train.screens.console import Log
from train.sounds.predicted import named_sounds, read_sounds
from train.tasks.record import Folder, Prediction, Predictor
from train.tasks.translate.speech.transcription import transcribe


def predict(params: tfm.Seq2Seq, folder: Folder, names: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The text of each sound."""
    run, processor = folder.config, folder.processor
    sounds = read_sounds(names, processor.sounds, run.data, log)
    for name, text in zip(sounds.names, transcribe(params, run, processor, sounds, log, batch), strict=True):
        yield Prediction(f"{name}\t{text}", {"file": name, "text": text})


PREDICTOR = Predictor((), lambda options, folder: named_sounds(options), predict)
