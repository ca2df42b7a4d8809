"""What sentence-transformers reads beside a model of transformers: how states of tokens become a vector."""

from pathlib import Path

from train.files.strict_json import json_text

# What its pooling is called in its configuration.
_MODES = {
    "first": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
}
_OTHER_MODES = ("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens")


def save(folder: Path, width: int, pool: str, length: int):
    """Writes modules.json and the configurations of both modules.

    width: of the vectors
    pool: first | mean | last | max
    length: tokens that are read of a text, special tokens included
    """
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    contents = {
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            **{mode: name == pool for name, mode in _MODES.items()},
            **dict.fromkeys(_OTHER_MODES, False),
            "include_prompt": True,
        },
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {},
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json_text(content, indent=2) + "\n")
