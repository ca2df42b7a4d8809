"""Presets of masked language modelling."""

from train.settings.recipes import long_texts
from train.settings.recipes.bert import PAPER, QUICK, bert
from train.settings.recipes.fields import Preset
from train.settings.recipes.modernbert import MODERNBERTS

PRESETS: dict[str, Preset] = {
    "bert-tiny": bert(2, 128, 2, rate=2.5e-3) | QUICK,
    **{name: bert(2, 128, 2, rate=2.5e-3) | QUICK | fields for name, fields in long_texts.LONG_ROWS.items()},
    "bert-mini": bert(4, 256, 4, rate=1e-3, scan=False),
    "bert-small": bert(4, 512, 8, rate=5e-4),
    "bert-base": bert(12, 768, 12, rate=1e-4) | PAPER,
    "bert-large": bert(24, 1024, 16, rate=1e-4) | PAPER,
    "longformer-base": bert(12, 768, 12, rate=3e-5) | long_texts.LONGFORMER,
    "bigbird-base": bert(12, 768, 12, rate=1e-4) | long_texts.BIGBIRD,
    **MODERNBERTS,
}
