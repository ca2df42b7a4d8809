"""A model for mteb: what its runner asks for vectors (Muennighoff et al. 2023).

    import mteb
    from train.lab.mteb_model import MtebModel

    results = mteb.evaluate(MtebModel("runs/deals"), mteb.get_tasks(["STSBenchmark"]))

The only file that needs its package, `mteb`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import final

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from train.lab.embedding.options import TextEncoderOptions, open_encoders, role_prompts, similarity_of
from train.screens.console import Log

_SIMILARITIES = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT}


@final
class MtebModel(AbsEncoder):
    """The vectors of a run folder, or of one of transformers or sentence-transformers.

    Queries and passages have the prompts that the folder has for them; texts of other tasks have its default prompt.
    Raises UserError for a folder without vectors, and ValueError for a similarity that mteb does not compute.
    """

    def __init__(self, path: str):
        options = TextEncoderOptions(run=path)
        query, passage = role_prompts(options)
        texts, queries, passages = open_encoders(options, [None, query, passage], Log(quiet=True))
        self.encoders = {None: texts, "query": queries, "document": passages}
        similarity = similarity_of(options)
        if similarity not in _SIMILARITIES:
            raise ValueError(
                f"{path}: similarity_fn_name={similarity} is not computed by mteb here; cosine and dot are"
            )
        unknown = dict.fromkeys(_UNSAID)
        self.mteb_model_meta = ModelMeta(
            **unknown | {"name": f"tfm/{Path(path).resolve().name}", "revision": "local", "framework": ["JAX"]},
            similarity_fn_name=_SIMILARITIES[similarity],
        )

    def encode(self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type=None, **options) -> np.ndarray:
        """Batches with the field `text` -> float32 [N,D] of all texts."""
        role = None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
        return self.encoders[role]([text for batch in inputs for text in batch["text"]])


# What is not said of a model.
_UNSAID = (
    *("loader", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim", "license"),
    *("open_weights", "public_training_code", "public_training_data", "use_instructions", "training_datasets"),
)
