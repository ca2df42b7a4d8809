"""The fields of config.json: the type and the range of those that depend on others, and those that change nothing here.

The fields in the tables of families have the types of our fields.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from tfm.config.model import MAX_SIZES, Config
from tfm.options.choices import Range, is_optional, plain_type
from tfm.options.dotted import hint_of

# Of their code, of how a model was trained, and of text generation.
IGNORED = frozenset(
    """_name_or_path _attn_implementation architectures attn_implementation bad_words_ids bos_token_id
    chunk_size_feed_forward classif_dropout classifier_dropout classifier_dropout_prob decoder_start_token_id
    directionality dtype early_stopping eos_token_id extra_pos_embeddings finetuning_task forced_bos_token_id
    forced_eos_token_id force_bos_token_to_be_generated gradient_checkpointing id2label init_std
    initializer_factor initializer_range is_encoder_decoder label2id length_penalty max_length min_length
    model_type no_repeat_ngram_size num_beams num_labels output_attentions output_hidden_states output_past
    pad_token_id pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    prefix problem_type return_dict sep_token_id static_position_embeddings task_specific_params tokenizer_class
    torch_dtype transformers_version use_cache""".split()
)

Size = Annotated[int, Range(1, 1 << 24)]
Layers = Annotated[int, Range(1, MAX_SIZES["layers"])]
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
TYPES: Mapping[str, Any] = {
    "architectures": list[str] | None,
    "id2label": dict[str, str | int] | None,
    "num_labels": Annotated[int, Range(0, MAX_SIZES["classes"])] | None,
    "problem_type": Literal["single_label_classification", "multi_label_classification", "regression"] | None,
    "pad_token_id": int | None,
    "decoder_start_token_id": int | None,
    # Sizes
    "embedding_size": Size,
    "max_position_embeddings": Size,
    "num_key_value_heads": Size | None,
    "head_dim": Size | None,
    "attention_head_size": Size | None,
    "d_kv": Size,
    "n_inner": Size | None,
    "num_layers": Layers,
    "num_decoder_layers": Layers | None,
    "encoder_layers": Layers,
    "decoder_layers": Layers,
    # Positions
    "rope_theta": Positive,
    "rotary_emb_base": Positive,
    "rotary_pct": Positive,
    "partial_rotary_factor": Positive,
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
    "local_attention": Annotated[int, Range(0, 1 << 30)],
    "global_attn_every_n_layers": Annotated[int, Range(0, MAX_SIZES["layers"])] | None,
    "layer_types": list[str] | None,
    # The output
    "scale_decoder_outputs": bool,
}


class RopeByLayer(TypedDict, total=False):
    """`rope_parameters` of families with several kinds of layers."""

    full_attention: Rope | None
    sliding_attention: Rope | None


class Field(NamedTuple):
    """A field of ours that one field of config.json holds.

    name: its dotted name (`tfm.flatten`)
    default: their value where config.json has none
    values: our value by theirs, where they differ
    zero_is_none: their 0 is our None
    """

    name: str
    default: Any
    values: Mapping[Any, Any] | None = None
    zero_is_none: bool = False

    def hint(self, config: Config) -> Any:
        """The type of their values: that of ours, of sizes with their range."""
        if self.values is not None:
            return type(next(iter(self.values)))
        hint = hint_of(config, self.name)
        if self.name not in MAX_SIZES:
            return hint
        size: Any = Annotated[plain_type(hint), Range(1, MAX_SIZES[self.name])]
        return size | None if is_optional(hint) else size

    def holds(self, value: Any) -> bool:
        """Whether config.json can say our value."""
        if self.values is not None:
            return value in self.values.values()
        return value is not None or self.zero_is_none

    def write(self, value: Any) -> Any:
        """Our value -> theirs."""
        if self.values is not None:
            return next(hf_value for hf_value, our_value in self.values.items() if our_value == value)
        return type(self.default)(0) if value is None and self.zero_is_none else value


def class_names(fields: Mapping[str, Any]) -> list[str]:
    """The names of the classes, in the order of the outputs; [] where config.json has none.

    Raises ValueError where they are not numbered from 0 on.
    """
    labels = {str(index): label for index, label in (fields.get("id2label") or {}).items()}
    missing = [index for index in range(len(labels)) if str(index) not in labels]
    if missing:
        raise ValueError(f"config.json: id2label has {len(labels)} classes and none of number {missing[0]}; correct it")
    return [str(labels[str(index)]) for index in range(len(labels))]


def flat_fields(fields: Mapping[str, Any], nested: Iterable[str]) -> dict[str, Any]:
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


def nested_fields(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `flat_fields`."""
    fields: dict[str, Any] = {}
    for key, value in flat.items():
        name, _, field = key.partition(".")
        if field:
            fields.setdefault(name, {})[field] = value
        else:
            fields[name] = value
    return fields
