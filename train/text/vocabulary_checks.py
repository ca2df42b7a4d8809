"""Where the vocabulary of a folder without tokenizer.json and the fields of the folder do not fit each other."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from train.text.tokenizer_files import UNKNOWN, TokenizerFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_pieces(files: TokenizerFiles, vocabulary: str, special: Mapping[str, str], has_frame: bool) -> None:
    """Raises ValueError for fields that transformers applies to the pieces of a SentencePiece model, the file
    `vocabulary`; warns of those that change nothing here.

    special: the tokens of the class by their field; has_frame: whether the class says what stands around texts
    """
    if not vocabulary.endswith((".model", ".spm")):
        return
    if files.optional("split_special_tokens"):
        raise ValueError("split_special_tokens=true is not supported without tokenizer.json; remove the field")
    if files.options.get("sp_model_kwargs"):
        warnings.warn("sp_model_kwargs is not read: a text is cut in one way alone, with no sampling", stacklevel=2)
    for field in ("unk_token", "pad_token"):
        if field in files.options and files.options[field] is None and field in special:
            raise ValueError(f"{field} is null, and {vocabulary} has {special[field]}; remove the field")
    unknown = files.name("unk_token", "")
    if unknown and unknown != special.get("unk_token", unknown):
        warnings.warn(
            f"unk_token={unknown}, and unknown characters are {special['unk_token']} in files of the class: "
            f"transformers reads that as text then, and writes {unknown}",
            stacklevel=2,
        )
    for field in ("add_bos_token", "add_eos_token"):
        if field in files.options and has_frame:
            warnings.warn(f"{field} is not read: the class says what stands around texts", stacklevel=2)


def check_special(
    files: TokenizerFiles, names: tuple[str, ...], tokenizer: "Tokenizer", special: Mapping[str, str], kind: str
) -> None:
    """Raises ValueError where unknown characters have no token; warns of special tokens of the class that are absent,
    and of a SentencePiece model that is none of `kind`, as transformers 5 reads it.

    tokenizer: made of the files `names`, without tokens beside them; special: the tokens of the class by their field
    """
    vocabulary, own_kind = names[0], type(tokenizer.model).__name__
    if len(names) == 1 and vocabulary.endswith(".model") and own_kind != kind:
        warnings.warn(
            f"{vocabulary} is a model of {own_kind}, which transformers 5 reads as one of {kind} for "
            f"tokenizer_class={files.class_name}: words are cut in another way there",
            stacklevel=2,
        )
    try:
        tokenizer.encode(UNKNOWN)
    except Exception as error:  # the library raises that bare
        unknown = files.name("unk_token", special.get("unk_token", ""))
        of_class = "" if "unk_token" in files.special else f" of tokenizer_class={files.class_name}"
        raise ValueError(f"unk_token={unknown}{of_class} is no token of {vocabulary}; name one that is") from error
    added = {token.content for token in (*files.numbered.values(), *files.extra)}
    mask, own_mask = files.name("mask_token", ""), special.get("mask_token", "")
    if vocabulary.endswith(".model") and mask and own_mask and mask != own_mask:
        warnings.warn(
            f"mask_token={mask} stands where {vocabulary} of the class has {own_mask}; transformers 5 may give it "
            "another id",
            stacklevel=2,
        )
    for field, token in files.special.items():
        if token.content not in added and tokenizer.token_to_id(token.content) is None:
            warnings.warn(
                f"{field}={token.content} is no token of {vocabulary}: it comes behind all tokens, and transformers 5 "
                "may give it another id",
                stacklevel=2,
            )
    for field, default in special.items():
        if field in files.fields or default in added or tokenizer.token_to_id(default) is not None:
            continue
        renamed = next((name for name, token in special.items() if token == default and name in files.special), "")
        reason = f", as {renamed} is {files.special[renamed].content}" if renamed else ""
        warnings.warn(f"{vocabulary} lacks {default}, the {field} of the class{reason}: there is none", stacklevel=2)


def check_frame(
    files: TokenizerFiles, vocabulary: str, class_name: str, template: list[str], ids: Mapping[str, int | None]
) -> None:
    """Raises ValueError where a class puts a token around texts whose field is null, or which the vocabulary lacks.

    vocabulary: its file; template: the frame of a text, with the fields of its tokens; ids: of those tokens
    """
    for field, value in files.fields.items():
        if value is None and f"{{{field}}}" in template:
            raise ValueError(f"{field} is null, and tokenizer_class={class_name} puts it around texts; name it")
    if missing := sorted(name for name, index in ids.items() if index is None):
        names = "src_lang" if missing[0] in template else "the names"  # a language has no field of its own there
        raise ValueError(
            f"{vocabulary} has no {', '.join(missing)}, which tokenizer_class={class_name} puts around texts; correct "
            f"{names}"
        )
