"""The fields of config.json: the type and the range of those that `Family.read` reads, and those that change nothing
here. The fields in the tables of families have the types of the fields of `Config`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypedDict

from tfm.config.model import MAX_SIZES
from tfm.options.choices import Hint, Range

# Fields of config.json by name; each has the type that `TYPES` or its family says.
Fields = Mapping[str, Any]

# Why a field changes no result here.
CODE = "it says how transformers runs a model, not what the model computes"
TRAINING = "it matters in training alone"
UNREAD = "transformers does not read it for this model"
OTHER_HEAD = "it is of a head that the classes here have not"
OTHER_LAYERS = "it is of layers that the model has not"
ELSEWHERE = "another part reads it, or it is read beside other fields"
GENERATION = "tfm/hf/generation.py reads it"


def because(reason: str, names: str) -> dict[str, str]:
    """Names of fields, apart by spaces, with the reason why they change nothing."""
    return dict.fromkeys(names.split(), reason)


OF_GENERATION = because(
    GENERATION,
    """bad_words_ids bos_token_id decoder_start_token_id early_stopping eos_token_id forced_bos_token_id
    forced_eos_token_id force_bos_token_to_be_generated length_penalty max_length min_length no_repeat_ngram_size
    num_beams prefix task_specific_params begin_suppress_tokens do_sample encoder_no_repeat_ngram_size max_new_tokens
    min_new_tokens min_p num_return_sequences renormalize_logits repetition_penalty stop_strings suppress_tokens
    temperature top_k top_p typical_p epsilon_cutoff eta_cutoff""",
)
# Fields of all families that change no result here, and why.
IGNORED = OF_GENERATION | because(
    CODE,
    """_name_or_path _attn_implementation attn_implementation chunk_size_feed_forward directionality dtype
    extra_pos_embeddings model_type output_attentions output_hidden_states output_past pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type return_dict
    static_position_embeddings tokenizer_class torch_dtype transformers_version use_cache""",
)
IGNORED |= because(
    TRAINING,
    """classif_dropout classifier_dropout classifier_dropout_prob finetuning_task gradient_checkpointing init_std
    initializer_factor initializer_range loss_type""",
)
IGNORED |= because(
    ELSEWHERE,  # `Family.architecture`, tasks, `quantized`
    """architectures id2label is_encoder_decoder label2id num_labels pad_token_id problem_type quantization_config
    sbert_ce_default_activation_function sentence_transformers sep_token_id""",
)

Size = Annotated[int, Range(1, 1 << 24)]
LayerCount = Annotated[int, Range(1, MAX_SIZES["layers"])]
Distance = Annotated[int, Range(-1, 1 << 24)]  # -1: none
Positive = Annotated[float, Range(1e-30)]
Scale = Annotated[float, Range(0)]  # 0: none


class Rope(TypedDict, total=False):
    """How rotary positions are scaled."""

    rope_type: str | None
    type: str | None
    rope_theta: Positive | None
    partial_rotary_factor: Positive | None
    factor: Positive | None
    low_freq_factor: Positive | None
    high_freq_factor: Positive | None
    original_max_position_embeddings: Size | None
    attention_factor: Positive | None
    beta_fast: Positive | None
    beta_slow: Positive | None
    mscale: Scale | None
    mscale_all_dim: Scale | None
    truncate: bool | None
    short_factor: list[Positive] | None
    long_factor: list[Positive] | None


# By name, in all families.
TYPES: Mapping[str, Hint] = {
    "architectures": list[str] | None,
    "id2label": dict[str, str | int] | None,
    "num_labels": Annotated[int, Range(0, MAX_SIZES["classes"])] | None,
    "problem_type": Literal["single_label_classification", "multi_label_classification", "regression"] | None,
    "pad_token_id": int | None,
    "sbert_ce_default_activation_function": str | None,
    "decoder_start_token_id": int | None,
    # Sizes
    "embedding_size": Size,
    "max_position_embeddings": Size,
    "num_key_value_heads": Size | None,
    "head_dim": Size | None,
    "attention_head_size": Size | None,
    "d_kv": Size,
    "n_inner": Size | None,
    "num_layers": LayerCount,
    "num_decoder_layers": LayerCount | None,
    "encoder_layers": LayerCount,
    "decoder_layers": LayerCount,
    # Positions
    "rope_theta": Positive | None,
    "rotary_emb_base": Positive | None,
    "rotary_pct": Positive | None,
    "partial_rotary_factor": Positive | None,
    "original_max_position_embeddings": Size | None,
    "rope_scaling": Rope | None,
    "rope_parameters": Rope | None,
    "global_rope_theta": Positive | None,
    "local_rope_theta": Positive | None,
    "relative_attention": bool,
    "pos_att_type": str | list[str] | None,
    "share_att_key": bool,
    "norm_rel_ebd": str,
    "position_biased_input": bool,
    "position_buckets": Distance,
    "max_relative_positions": Distance,
    # Kinds of layers
    "sliding_window": Annotated[int, Range(0, 1 << 30)] | None,
    "local_attention": Annotated[int, Range(1, 1 << 30)],
    "global_attn_every_n_layers": Annotated[int, Range(0, MAX_SIZES["layers"])] | None,
    "layer_types": list[str] | None,
    "use_sliding_window": bool | None,
    "max_window_layers": Annotated[int, Range(0, 1 << 30)],
    # The output
    "scale_decoder_outputs": bool,
}


class RopeByLayer(TypedDict, total=False):
    """`rope_parameters` of families with several kinds of layers."""

    full_attention: Rope | None
    sliding_attention: Rope | None


# Activations of config.json, and of config.json with a gate.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_fast": "gelu_tanh",
}
GATED = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}


def class_names(fields: Fields) -> list[str]:
    """The names of the classes, in the order of the outputs; [] where config.json has none.

    Raises ValueError where they are not numbered from 0 on, and where label2id gives one of them another number; other
    names in label2id are those of another head.
    """
    labels = {str(index): str(label) for index, label in (fields.get("id2label") or {}).items()}
    numbers = fields.get("label2id") or {}
    for index, label in labels.items():
        if str(numbers.get(label, index)) != index and [*labels.values()].count(label) == 1:
            raise ValueError(
                f"config.json has id2label.{index}={label!r} and label2id.{label}={numbers[label]}, which must be "
                "equal; correct one of them"
            )
    for index in map(str, range(len(labels))):
        if index not in labels:
            raise ValueError(f"config.json: id2label has {len(labels)} classes and none of number {index}; correct it")
    return [labels[index] for index in map(str, range(len(labels)))]


def flat_fields(fields: Fields, nested: Iterable[str]) -> dict[str, Any]:
    """Fields of config.json, those of nested objects beside the others: `text_config.hidden_size`.

    Raises ValueError where such a field is no object.
    """
    flat: dict[str, Any] = dict(fields)
    for name in nested:
        values = flat.pop(name, None)
        if values is not None and not isinstance(values, Mapping):
            raise ValueError(f"config.json: {name}={values!r} must be an object")
        flat |= {f"{name}.{field}": value for field, value in (values or {}).items()}
    return flat


def nested_fields(flat: Fields) -> dict[str, Any]:
    """Inverse of `flat_fields`."""
    fields: dict[str, Any] = {}
    for key, value in flat.items():
        name, _, field = key.partition(".")
        if field:
            fields.setdefault(name, {})[field] = value
        else:
            fields[name] = value
    return fields
