"""What a Hugging Face folder says of special tokens: tokenizer_config.json, special_tokens_map.json, config.json."""

import json
import warnings
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tfm.options.choices import check_object, check_type
from tfm.options.json_text import read_object, read_text
from train.files.strict_json import json_text
from train.text import class_differences, default_tokens, pair_types, tokenizer_classes, tokenizer_files
from train.text.special import (
    CONFIGURED,
    ROLES,
    AnyTokenizer,
    ConfiguredTokenizer,
    added_tokens,
    document_marks,
    special_tokens,
)
from train.text.token_files import MAX_ID

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from train.text.tokenizer_files import TokenizerFiles

CONFIG = "tokenizer_config.json"
GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"

# The fields of generation_config.json that say with what a text begins.
_BEGINS = ("decoder_start_token_id", "forced_bos_token_id")

# What a tokenizer keeps of tokenizer_config.json beside its roles; the rest says how tokenizer.json was made.
KEPT = (
    *("chat_template", "padding_side", "truncation_side", "extra_special_tokens", "additional_special_tokens"),
    *("src_lang", "tgt_lang", "legacy_behaviour", "model_specific_special_tokens"),
)

# The fields whose objects name further tokens, as image_token does beside the roles.
NAMED = ("extra_special_tokens", "model_specific_special_tokens")


def configured(
    folder: Path,
    tokenizer: "Tokenizer",
    model_fields: Mapping[str, Any],
    sides: Mapping[str, Any] = MappingProxyType({}),
) -> ConfiguredTokenizer:
    """The tokenizer of a folder with what the folder says of it; the tokens of its roles are special.

    model_fields: of config.json. A role is what tokenizer_config.json names, else the class of the tokenizer, else an
    id of config.json, of which tokenizer.json knows better what stands around a text. A folder without a configuration
    of its tokenizer has the usual names. sides: how tokenizer.json pads and cuts, where no field says it. Raises
    ValueError for a fault in a file, and for facts that contradict each other.
    """
    files = tokenizer_files.read(folder)
    config = files.fields
    class_name = _key(files.class_name or files.model_type)
    side = {"padding_side": "left"} if _pads_left(tokenizer, files, class_name) else {}
    texts = side | _of_sides(sides, tokenizer) | _named(files, tokenizer) | _kept(folder, config)
    is_slow = not (folder / "tokenizer.json").exists()
    defaults = default_tokens.BY_NAME.get(_key(tokenizer_classes.class_name(files)) if is_slow else class_name, {})
    is_known = any(tokenizer.token_to_id(token) is not None for token in defaults.values())
    prefix, _, suffix = added_tokens(tokenizer, "a")
    frame = {"cls": prefix[:1], "sep": suffix[-1:]}
    for role in CONFIGURED:
        name = f"{role}_token"
        if name in texts:
            continue
        token = defaults.get(name)
        if token is None or tokenizer.token_to_id(token) is None:
            model_ids = model_fields.get(f"{name}_id")
            token = _token_of_id(tokenizer, name, model_ids if model_ids is None else frame.get(role) or model_ids)
        if token is None and not config and not is_known:
            token = next((usual for usual in ROLES.get(role, ()) if tokenizer.token_to_id(usual) is not None), None)
        if token is not None:
            texts[name] = token
    texts[pair_types.FIELD] = pair_types.input_names(folder / CONFIG, class_name, config, model_fields)
    _add_special(tokenizer, files, texts)
    if check_type(f"{folder / CONFIG}: split_special_tokens", config.get("split_special_tokens"), bool | None):
        tokenizer.encode_special_tokens = True
    from tfm.hf.generation import read_generation  # with jax

    fields = {name: value for name, value in texts.items() if value is not None}
    result = ConfiguredTokenizer(tokenizer, fields, generation=read_generation(folder, model_fields))
    _check_template(folder, result)
    return result


def save(tokenizer: AnyTokenizer) -> tuple[str, str]:
    """What a run folder keeps of a configuration, tokenizer_config.json and generation_config.json; "" for none.

    A text ends with the end of a document too.
    """
    if not isinstance(tokenizer, ConfiguredTokenizer):
        return "", ""
    config, generation = json_text(tokenizer.fields, indent=2) + "\n", tokenizer.generation
    if generation is None or not generation.values:
        return config, ""
    stop = list(dict.fromkeys((*generation.stop, document_marks(tokenizer).last)))
    return config, json_text({**generation.values, "eos_token_id": stop}, indent=2) + "\n"


def generation_text(tokenizer: AnyTokenizer, fields: Mapping[str, Any]) -> str:
    """generation_config.json of a written folder: the fields of its config.json, and over them what a run keeps."""
    from tfm.hf.fields import OF_GENERATION  # with jax

    kept = save(tokenizer)[1]
    own = {name: value for name, value in fields.items() if name in OF_GENERATION or name == "pad_token_id"}
    begins = {name: own[name] for name in _BEGINS if name in own}  # a run may write another language
    return json_text(own | (json.loads(kept) if kept else {}) | begins, indent=2) + "\n"


def read_kept(tokenizer: "Tokenizer", config: Path) -> ConfiguredTokenizer:
    """The tokenizer of a run folder, with the files of `save` beside it."""
    from tfm.hf.generation import read_generation  # with jax

    generation = read_generation(config.parent, {}) if (config.parent / GENERATION).is_file() else None
    return ConfiguredTokenizer(tokenizer, read_object(config), generation=generation)


def model_fields(folder: Path) -> dict[str, Any]:
    """The fields of config.json; {} without that file."""
    return read_object(folder / "config.json") if (folder / "config.json").is_file() else {}


def _named(files: "TokenizerFiles", tokenizer: "Tokenizer") -> dict[str, Any]:
    """The text of every role that the fields name; None where they say that there is no such token."""
    folder, texts = files.folder, dict[str, Any]()
    for role in CONFIGURED:
        name = f"{role}_token"
        if name not in files.fields:
            continue
        text = files.special[name].content if name in files.special else None
        if text is not None and tokenizer.token_to_id(text) is None:
            if role in ("pad", "unk", "mask"):  # a text has them only where they are in the vocabulary
                warnings.warn(f"{folder / CONFIG}: {name}={text!r} is no token of the tokenizer: none is", stacklevel=2)
                text = None
            else:
                raise ValueError(
                    f"{folder / CONFIG}: {name}={text!r} is no token of the tokenizer; name one, or remove the field"
                )
        texts[name] = text
    return texts


def _of_sides(sides: Mapping[str, Any], tokenizer: "Tokenizer") -> dict[str, Any]:
    """The token and the side of the padding of tokenizer.json, and the left side where it cuts there."""
    texts = {"truncation_side": "left"} if sides.get("truncation", {}).get("direction") == "left" else {}
    padding = sides.get("padding")
    if not padding or tokenizer.token_to_id(padding["pad_token"]) is None:
        return texts
    return texts | {"pad_token": padding["pad_token"], "padding_side": padding["direction"]}


def _kept(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that stay with the tokenizer; a file with a chat template comes before another one in the field, which
    is said."""
    sides = dict.fromkeys(("padding_side", "truncation_side"), Literal["left", "right"] | None)
    check_object(f"{folder / CONFIG}: ", config, sides)
    further = named_tokens(config).keys() & config.keys() - {f"{role}_token" for role in CONFIGURED}
    kept = {name: config[name] for name in (*KEPT, *sorted(further)) if config.get(name) is not None}
    if kept.get("truncation_side") == "left":
        warnings.warn(
            f"{folder / CONFIG}: truncation_side=left: train.embed keeps the end of a text that is too long; other "
            "commands keep its beginning",
            stacklevel=2,
        )
    if (folder / TEMPLATE).is_file():
        mark = (folder / TEMPLATE).read_bytes().startswith(BOM_UTF8)
        template = f"{BOM_UTF8.decode() if mark else ''}{read_text(folder / TEMPLATE)}"  # as in transformers
        if kept.get("chat_template", template) != template:
            warnings.warn(
                f"{folder}: chat_template of {CONFIG} is not that of {TEMPLATE}, which is taken, as in transformers",
                stacklevel=2,
            )
        kept["chat_template"] = template
    return kept


def named_tokens(fields: Mapping[str, object]) -> dict[str, str]:
    """The tokens that fields of tokenizer_config.json name, by the names under which a chat template knows them."""
    groups: list[Mapping[str, object]] = [{name: text for name, text in fields.items() if name.endswith("_token")}]
    groups += [value for name in NAMED if isinstance(value := fields.get(name), Mapping)]
    tokens = {name: token for group in groups for name, token in group.items()}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in tokens.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _key(class_name: str) -> str:
    """The key of `default_tokens.BY_NAME` of a class, or of a kind of model."""
    return class_name.lower().removesuffix("fast").removesuffix("tokenizer").replace("_", "").replace("-", "")


def _pads_left(tokenizer: "Tokenizer", files: "TokenizerFiles", class_name: str) -> bool:
    """Whether the class pads texts before their first token. That of Llama must be named."""
    if class_name not in default_tokens.PADS_LEFT:
        return False
    is_llama, name = class_name == "llama", files.class_name
    is_of_class = bool(name) and files.model_type not in tokenizer_files.AS_THE_FILE
    return not is_llama or (is_of_class and not class_differences.follows_file(tokenizer, name))


def _token_of_id(tokenizer: "Tokenizer", name: str, token: Any) -> str | None:
    """The token of an id of config.json; of several ids, the first. Warns of one that texts have."""
    index = token[0] if isinstance(token, list) and token else token
    text = tokenizer.id_to_token(index) if isinstance(index, int) and index in range(MAX_ID + 1) else None
    added = tokenizer.get_added_tokens_decoder()
    if text and not (index in added and added[index].special):
        warnings.warn(f"config.json has {name}_id={token}, {text!r}: texts are written without that", stacklevel=2)
    return text


def _add_special(tokenizer: "Tokenizer", files: "TokenizerFiles", texts: Mapping[str, Any]):
    """Makes the tokens of all roles special, as transformers does: a text with such a token is not split there."""
    from tokenizers import AddedToken

    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    for role in CONFIGURED:
        text = texts.get(f"{role}_token")
        if text is None or (text in added and added[text].special):
            continue
        token = added.get(text) or files.special.get(f"{role}_token")
        strips = {flag: getattr(token, flag, False) for flag in ("lstrip", "rstrip", "single_word")}
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, **strips)])


def _check_template(folder: Path, tokenizer: ConfiguredTokenizer):
    """Raises ValueError where tokenizer.json puts the token of another role before or behind a text."""
    ids = tokenizer.ids
    prefix, _, suffix = added_tokens(tokenizer, "a")
    for place, tokens, roles in (("before", prefix[:1], ("cls", "bos")), ("behind", suffix[-1:], ("sep", "eos"))):
        own = {ids[role] for role in roles if role in ids}
        role = next((role for role in roles if role in ids), "")
        special = {*ids.values(), *special_tokens(tokenizer)} - {ids.get("pad")}  # Qwen3-Embedding ends with padding
        if tokens and own and tokens[0] not in own and tokens[0] in special:
            raise ValueError(
                f"{folder}: tokenizer.json puts {tokenizer.id_to_token(tokens[0])} {place} a text, and {CONFIG} has "
                f"{role}_token={tokenizer.id_to_token(ids[role])}; correct one of them"
            )
