"""The special tokens of a tokenizer, by role: what its configuration says of them, or their usual names without one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tfm.hf.generation import FolderGeneration

# The roles of special tokens, and the names that tokenizers without a configuration give them. Those that are trained
# here have the first names.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<|begin_of_text|>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}

# The roles that tokenizer_config.json names, as NAME_token.
CONFIGURED = (*ROLES, "bos", "eos")


# The field that says whether spaces before marks are left out of what is written, and those spaces (Wolf et al. 2020).
CLEANS = "clean_up_tokenization_spaces"
_SPACED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class SpecialTokens(NamedTuple):
    """Ids of the special tokens, by role."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class DocumentMarks(NamedTuple):
    """The tokens before and after a document of a language model; where both are one, it stands between documents."""

    first: int
    last: int


@final
class ConfiguredTokenizer:
    """A `tokenizers.Tokenizer`, whose methods it has, with the fields of its tokenizer_config.json.

    fields: the role of a special token, such as `eos_token` -> its text; and the rest that stays with a tokenizer
    target: the tokenizer of the texts that a translation model writes, where it is another; its ids are the same
    generation: how the folder of its model wants text to be written, where it says so
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        fields: Mapping[str, Any],
        target: "Tokenizer | None" = None,
        generation: "FolderGeneration | None" = None,
    ):
        self.tokenizer = tokenizer
        self.fields = dict(fields)
        self.target = target
        self.generation = generation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tokenizer":  # while a copy is made
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens; without spaces before marks, where the fields say so."""
        text = self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        for spaced in _SPACED if self.fields.get(CLEANS) else ():
            text = text.replace(spaced, spaced.strip())
        return text

    @property
    def ids(self) -> dict[str, int]:
        """The ids of the roles that the fields name."""
        tokens = ((role, self.fields.get(f"{role}_token")) for role in CONFIGURED)
        ids = {role: self.tokenizer.token_to_id(token) for role, token in tokens if token is not None}
        return {role: token for role, token in ids.items() if token is not None}


AnyTokenizer: TypeAlias = "Tokenizer | ConfiguredTokenizer"


def special_tokens(tokenizer: AnyTokenizer) -> SpecialTokens:
    """The ids of the special tokens, as the configuration of the tokenizer says, or by their usual names without one.

    Some may be absent. Padding is then the end of a text, [UNK] and [CLS] are padding, and mask=-1 says that nothing
    can be masked. The end of a text ends a part of it too, and its beginning stands for [CLS].
    """
    if isinstance(tokenizer, ConfiguredTokenizer):
        ids = dict(tokenizer.ids)
        ids.setdefault("cls", ids.get("bos", -1))
        ids.setdefault("sep", ids.get("eos", -1))
    else:
        ids = {role: _first_id(tokenizer, names) for role, names in ROLES.items()}
    sep = ids["sep"] if ids["sep"] >= 0 else max(ids.get("pad", 0), 0)
    pad = ids["pad"] if ids.get("pad", -1) >= 0 else sep
    unk, cls = (ids[role] if ids.get(role, -1) >= 0 else pad for role in ("unk", "cls"))
    return SpecialTokens(pad, unk, cls, sep, ids.get("mask", -1))


def _first_id(tokenizer: "Tokenizer", names: Iterable[str]) -> int:
    """The id of the first of these tokens that a tokenizer has, else -1. The vocabulary is not copied for it."""
    ids = map(tokenizer.token_to_id, names)
    return next((index for index in ids if index is not None), -1)


def target_tokenizer(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """The tokenizer of the texts that a translation model writes."""
    target = tokenizer.target if isinstance(tokenizer, ConfiguredTokenizer) else None
    return target or tokenizer


def document_marks(tokenizer: AnyTokenizer) -> DocumentMarks:
    """The tokens around a document of a language model.

    A document begins with the token that the tokenizer itself puts before a text. Without one, and without a
    configuration, the end of a document stands before it too.
    """
    last = special_tokens(tokenizer).sep
    if not isinstance(tokenizer, ConfiguredTokenizer):
        return DocumentMarks(last, last)
    last, prefix = tokenizer.ids.get("eos", last), added_tokens(tokenizer, "a")[0]
    begins = bool(prefix) and (prefix[0] == tokenizer.ids.get("bos") or prefix[0] != tokenizer.ids.get("cls"))
    return DocumentMarks(prefix[0] if begins else last, last)


def words_have_spaces(tokenizer: AnyTokenizer, mask: str) -> bool:
    """Whether a token of a word has the space before it, so that a mask in its place stands for the space too."""
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("a a", f"a {mask}", f"a{mask}")]
    words, spaced, joined = map(len, encoded)
    return words == 2 and spaced > joined


def made_up_mark(tokenizer: AnyTokenizer) -> str:
    """What is taken for the end of a document where the tokenizer has no such token, nor padding; "" where it has."""
    if not isinstance(tokenizer, ConfiguredTokenizer) or {"sep", "eos", "pad"} & tokenizer.ids.keys():
        return ""
    token = tokenizer.id_to_token(0)
    return f"the tokenizer names no eos_token, sep_token or pad_token: token 0, {token!r}, stands between documents"


def truncates_left(tokenizer: Any) -> bool:
    """Whether the tokenizer of a folder takes away the beginning of a text that is too long."""
    return isinstance(tokenizer, ConfiguredTokenizer) and tokenizer.fields.get("truncation_side") == "left"


def pads_left(tokenizer: Any) -> bool:
    """Whether its folder puts padding before texts, as padding_side=left of transformers."""
    return isinstance(tokenizer, ConfiguredTokenizer) and tokenizer.fields.get("padding_side") == "left"


def generation_of(tokenizer: Any) -> "FolderGeneration | None":
    """How the folder that a tokenizer is from wants text to be written; None for a tokenizer of this project."""
    return tokenizer.generation if isinstance(tokenizer, ConfiguredTokenizer) else None


def role_ids(tokenizer: AnyTokenizer) -> dict[str, int]:
    """The ids of the special tokens and of the marks of documents, by role."""
    return special_tokens(tokenizer)._asdict() | document_marks(tokenizer)._asdict()


def added_tokens(tokenizer: Any, *texts: str) -> tuple[list[int], list[int], list[int]]:
    """The tokens that a tokenizer itself adds before, between and after one or two texts."""
    encoding = tokenizer.encode(*texts)
    inner = [n for n, is_special in enumerate(encoding.special_tokens_mask) if not is_special]
    first, last = (inner[0], inner[-1]) if inner else (0, -1)
    middle = [encoding.ids[n] for n in range(first, last) if encoding.special_tokens_mask[n]]
    return encoding.ids[:first], middle, encoding.ids[last + 1 :]
