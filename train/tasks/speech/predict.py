"""What is said in sounds, as train.predict says it."""

from collections.abc import Iterator, Sequence

import tfm
from train.screens.console import Log
from train.tasks.record import Folder, Prediction, Predictor
from train.tasks.sounds.predict import inputs, sounds_of
from train.tasks.speech.transcription import transcribe


def predict(params: tfm.Seq2Seq, folder: Folder, names: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The text of each sound."""
    sounds = sounds_of(folder, names, folder.processor.sounds, log)
    for name, text in zip(
        sounds.names, transcribe(params, folder.config, folder.processor, sounds, log, batch), strict=True
    ):
        yield Prediction(f"{name}\t{text}", {"file": name, "text": text})


PREDICTOR = Predictor((), inputs, predict)
