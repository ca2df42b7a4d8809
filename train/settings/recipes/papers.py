"""The largest language models of 2020 to 2022, in the shapes of their papers: for `train.plan`, and for a cluster.

Batches that grow in a paper have their last size here, and so many steps that the tokens are the paper's.
"""

from train.settings.recipes.fields import Preset, model_fields, steps
from train.settings.recipes.long_texts import alternation

_ROWS = 2048


def _giant(tokens: float, rows: int, vocab: int, rate: float, warmup: float, model: Preset) -> Preset:
    """A model that reads so many rows of 2,048 tokens a step, and so many tokens in all."""
    run: Preset = {
        "batch.size": rows,
        "batch.length": _ROWS,
        "tokenizer.vocab": vocab,
        "optim.rate": rate,
        "optim.warmup": warmup,
        "model.dropout": 0.0,
        "model.length": _ROWS,
    }
    return run | steps(round(tokens / (rows * _ROWS)), every=5000) | model


# Brown et al. 2020, tables 2.1 and D.1, appendix B: 300 billion tokens, batches of 3.2 million at last (1,536 rows),
# 375 million tokens of warm-up, a cosine down to a tenth. It does not say how many tokens a banded layer sees.
_GPT3_SHAPE = model_fields(layers=96, width=12_288, heads=96) | alternation(window=256)
_GPT3 = _giant(300e9, 1536, 50_257, 6e-5, 119, _GPT3_SHAPE) | {
    "optim.beta2": 0.95,
    "optim.eps": 1e-8,
    "optim.final": 0.1,
}

_DEEPMIND = model_fields(layers=80, norm="rms", position="transformer_xl")

# Rae et al. 2021, table 1 and sections 3.1 and 3.3: 300 billion tokens in batches of 6 million at last.
_GOPHER = _giant(300e9, 3072, 32_000, 4e-5, 1500, _DEEPMIND | model_fields(width=16_384, heads=128))

# Hoffmann et al. 2022, table 4: 1.4 trillion tokens in batches of 3 million at last.
_CHINCHILLA = _giant(1.4e12, 1536, 32_000, 1e-4, 1500, _DEEPMIND | model_fields(width=8192, heads=64))

# Smith et al. 2022, sections 2.3 and 3.2: 270 billion tokens, a billion of them of warm-up.
_MT_NLG_SHAPE = model_fields(layers=105, width=20_480, heads=128, init_std=4e-3)
_MT_NLG = _giant(270e9, 1920, 51_200, 5e-5, 254, _MT_NLG_SHAPE) | {"optim.beta2": 0.95}

# Thoppilan et al. 2022, section 3 and appendix D: 2.81 trillion tokens, 256,000 a step. It does not say the rate.
_LAMDA_SHAPE = model_fields(layers=64, width=8192, heads=128, head_size=128, ffn=65_536, activation="geglu")
_LAMDA = _giant(2.81e12, 125, 32_000, 1e-4, 0.01, _LAMDA_SHAPE | model_fields(position="t5", norm="rms", bias=False))

# Chowdhery et al. 2022, table 1 and section 5: 780 billion tokens, batches of 4 million at last, a rate of 1e-2 that
# falls with the inverse root from step 10,000.
_PALM_SHAPE = model_fields(layers=118, width=18_432, heads=48, head_size=256, kv_heads=1, ffn=73_728, bias=False)
_PALM_KINDS = model_fields(activation="swiglu", position="rotary", norm="layer_no_bias", residual="parallel")
_PALM = _giant(780e9, 2048, 256_000, 1e-2, 10_000, _PALM_SHAPE | _PALM_KINDS) | {
    "optim.name": "adafactor",
    "optim.schedule": "noam",
}

# By name, on top of what GPT-2 has.
GIANTS: dict[str, Preset] = {
    "gpt3-175b": _GPT3,
    "gopher-280b": _GOPHER,
    "chinchilla-70b": _CHINCHILLA,
    "mt-nlg-530b": _MT_NLG,
    "lamda-137b": _LAMDA,
    "palm-540b": _PALM,
}
