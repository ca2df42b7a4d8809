"""Presets of classifiers of texts."""

from train.settings.recipes import long_texts
from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps

# What teaches the smallest BERT the built-in opinions from scratch, in a minute on two cores. Tried: twice the rate,
# dropout, head.pool=first (M35: negation is not learned).
_QUICK_OPINIONS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.length": 32,
    **steps(1500, every=300),
}


PRESETS: dict[str, Preset] = {
    "bert-tiny": fine_tuned_bert(2, 128, 2, rate=1e-3) | _QUICK_OPINIONS,
    **larger_berts(fine_tuned_bert),
    **{
        name: fine_tuned_bert(2, 128, 2, rate=1e-3) | _QUICK_OPINIONS | fields
        for name, fields in long_texts.SHORT_ROWS.items()
    },
    "longformer-base": fine_tuned_bert(12, 768, 12, rate=3e-5) | long_texts.LONGFORMER,
    "bigbird-base": fine_tuned_bert(12, 768, 12, rate=3e-5) | long_texts.BIGBIRD,
}
