"""Tokenizers made of the files that transformers calls slow: vocab.txt, vocab.json with merges.txt, SentencePiece.

Each function reads one layout of files: a folder and the names of its special tokens -> a `tokenizers.Tokenizer`
without them. `tokenizer_classes` says which class has which layout.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from train.text import languages, sentencepiece_model
from train.text.sentencepiece_model import BYTE, CONTROL, SPACE, UNKNOWN, UNUSED, USER_DEFINED, Piece
from train.text.token_files import read_pairs, read_vocab
from train.text.tokenizer_files import TokenizerFiles
from train.text.tokenizer_kinds import Casing, word_pieces, write_ends

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Names = Mapping[str, str]  # the special tokens of a tokenizer, by their field
# The pieces of a SentencePiece model -> those of the tokenizer, in the order of their ids.
Layout = Callable[[list[Piece], Names, TokenizerFiles], list[Piece]]

# Where CLIP (Radford et al. 2021) and Qwen2 cut a text.
_CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# A character of private use: no text has a token that ends in it, and none is written.
_HIDDEN = "\U000f0000"


def bert(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """vocab.txt, by BERT's rules. Raises ValueError for what slow and fast tokenizers read in two ways."""
    if not files.option("do_basic_tokenize", True):
        raise ValueError("do_basic_tokenize=false is not supported; set it to true if texts are words and punctuation")
    if unsplit := [word for word in files.words("never_split") if word not in names.values()]:
        raise ValueError(f"never_split={unsplit} is not supported; give these words as additional_special_tokens")
    casing = Casing(
        files.option("do_lower_case", True),
        files.optional("strip_accents"),
        files.option("tokenize_chinese_chars", True),
    )
    return word_pieces(files.folder / "vocab.txt", casing, names["unk_token"])


def gpt2(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """vocab.json and merges.txt: pairs of bytes, words with the space before them."""
    from tokenizers import decoders, pre_tokenizers

    tokenizer = _pairs(files.folder)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=files.option("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def qwen2(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """As GPT-2, of composed letters and with single digits."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    tokenizer = _pairs(files.folder)
    tokenizer.normalizer = normalizers.NFC()
    prefix = files.option("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def clip(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """vocab.json and merges.txt: pairs of bytes of lower-cased words, which end in </w>."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    tokenizer = _pairs(files.folder, end_of_word_suffix="</w>", unk_token=names["unk_token"])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CLIP), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    write_ends(tokenizer)
    return tokenizer


def openai_gpt(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """vocab.json and merges.txt: pairs of letters of BERT's words, which end in </w> (Radford et al. 2018)."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    tokenizer = _pairs(files.folder, end_of_word_suffix="</w>", unk_token=names["unk_token"])
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def sentencepiece(
    file_name: str, layout: Layout, splits_spaces: bool = True
) -> Callable[[TokenizerFiles, Names], "Tokenizer"]:
    """The reader of a SentencePiece model whose pieces have the ids of the layout.

    splits_spaces: whether every kind of space ends a word, also those that the model would keep
    """

    def build(files: TokenizerFiles, names: Names) -> "Tokenizer":
        from tokenizers import pre_tokenizers

        if not files.option("add_prefix_space", True):
            raise ValueError(f"add_prefix_space=false, and words of {file_name} begin with a space; remove the field")
        model = sentencepiece_model.parse((files.folder / file_name).read_bytes())
        model = model._replace(pieces=layout(model.pieces, names, files))
        tokenizer = sentencepiece_model.convert(model)
        prepare = sentencepiece_model.character_map if splits_spaces else sentencepiece_model.cleaner
        tokenizer.normalizer = prepare(model)
        # Spaces are marked here: a normalizer would mark them in tokens beside the vocabulary too.
        steps: list = [pre_tokenizers.WhitespaceSplit() if splits_spaces else None]
        steps += [pre_tokenizers.Metaspace(SPACE, "always"), tokenizer.pre_tokenizer]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step for step in steps if step])
        return tokenizer

    return build


def llama(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """tokenizer.model; with legacy=false the start of a text gets a space, and what follows a special token none.

    Raises ValueError for a model without bytes: transformers 4 reads unknown characters as <unk>, and 5 drops them.
    """
    from tokenizers import pre_tokenizers

    model = sentencepiece_model.parse((files.folder / "tokenizer.model").read_bytes())
    if not model.texts(BYTE):
        raise ValueError("tokenizer.model has no tokens of bytes, as those of Llama have; give tokenizer.json instead")
    spaced = model._replace(add_dummy_prefix=model.add_dummy_prefix and files.option("add_prefix_space", True))
    tokenizer = sentencepiece_model.convert(spaced)
    if spaced.add_dummy_prefix and not files.option("legacy", True):
        steps = [pre_tokenizers.Metaspace(SPACE, "first", split=False), tokenizer.pre_tokenizer]
        tokenizer.normalizer = sentencepiece_model.cleaner(spaced)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step for step in steps if step])
    return tokenizer


def albert(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """spiece.model, after quotation marks, accents and letter case."""
    from tokenizers import normalizers

    tokenizer = sentencepiece("spiece.model", as_they_are)(files, names)
    steps: list = [normalizers.Replace(mark, '"') for mark in ("``", "''")]
    if not files.option("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if files.option("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence([*steps, tokenizer.normalizer])
    return tokenizer


def deberta_v2(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """spm.model, cut at punctuation marks if split_by_punct says so."""
    from tokenizers import normalizers, pre_tokenizers

    tokenizer = sentencepiece("spm.model", as_they_are, splits_spaces=False)(files, names)
    if files.option("do_lower_case", False):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
    if files.option("split_by_punct", False):
        steps = filter(None, [pre_tokenizers.Punctuation("isolated"), tokenizer.pre_tokenizer])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    return tokenizer


def marian(file_name: str) -> Callable[[TokenizerFiles, Names], "Tokenizer"]:
    """The reader of one model of Marian's pair, whose pieces have the ids of vocab.json (Junczys-Dowmunt et al. 2018).

    A piece without an id is left out, with a warning: words that have it are cut in another way.
    """

    def build(files: TokenizerFiles, names: Names) -> "Tokenizer":
        from tokenizers import decoders

        if files.option("separate_vocabs", False):
            raise ValueError("separate_vocabs=true is not supported: both languages must share vocab.json")
        for token in (*files.numbered.values(), *files.extra):
            if languages.is_code(token.content):
                raise ValueError(f"{token.content} is named among added tokens; vocab.json is enough, remove it there")
        ids = read_vocab(files.folder / "vocab.json")
        model = sentencepiece_model.parse((files.folder / file_name).read_bytes())
        if not model.add_dummy_prefix:
            raise ValueError(f"{file_name} puts no space before the first word of a text, which is not supported")
        tokenizer = sentencepiece_model.convert(model._replace(pieces=_renumbered(model, ids, names, file_name)))
        languages.read_codes(tokenizer, filter(languages.is_code, ids))
        tokenizer.decoder = decoders.Sequence([decoders.Replace(_HIDDEN, ""), tokenizer.decoder])
        return tokenizer

    return build


def m2m_100(files: TokenizerFiles, names: Names) -> "Tokenizer":
    """sentencepiece.bpe.model, whose pieces have the ids of vocab.json; languages after them (Fan et al. 2021).

    A piece without an id is left out, with a warning, as for Marian.
    """
    from tokenizers import decoders

    codes = {"m2m100": languages.M2M_100, "wmt21": languages.WMT_21}
    name, file_name = files.text("language_codes", "m2m100"), "sentencepiece.bpe.model"
    if name not in codes:
        raise ValueError(f"language_codes={name} is none of {', '.join(codes)}; correct it")
    ids = read_vocab(files.folder / "vocab.json")
    model = sentencepiece_model.parse((files.folder / file_name).read_bytes())
    pieces = _renumbered(model, ids, names, file_name)
    tokens = _control(f"__{code}__" for code in codes[name])
    tokenizer = sentencepiece_model.convert(model._replace(pieces=[*pieces, *tokens]))
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_HIDDEN, ""), tokenizer.decoder])
    return tokenizer


def _renumbered(
    model: sentencepiece_model.SentencePieceModel, ids: Mapping[str, int], names: Names, file_name: str
) -> list[Piece]:
    """The pieces in the order of their ids; those that the model lacks are hidden from texts."""
    tokens = sorted(ids, key=ids.__getitem__)
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"vocab.json does not number its {len(ids)} tokens from 0 to {len(ids) - 1}; correct it")
    if names["unk_token"] not in ids:
        raise ValueError(f"vocab.json has no unk_token={names['unk_token']}, for unknown characters; add it")
    pieces = {piece.text: piece for piece in model.pieces if piece.kind not in (CONTROL, UNKNOWN)}
    if lost := [text for text in pieces if text not in ids]:
        warnings.warn(
            f"{len(lost)} of {len(pieces)} pieces of {file_name} have no id in vocab.json, such as {lost[0]!r}; words "
            "that have them are cut into other pieces",
            stacklevel=2,
        )
    unknown = {names["unk_token"]: Piece(names["unk_token"], 0.0, UNKNOWN)}
    added = {token: Piece(token, 0.0, UNUSED) for token in tokens if token in names.values()}
    codes = {token: Piece(languages.mark(token), 0.0, USER_DEFINED) for token in tokens if languages.is_code(token)}
    visible = pieces | added | codes | unknown
    return [visible.get(token) or Piece(token + _HIDDEN, 0.0, UNUSED) for token in tokens]


def as_they_are(pieces: list[Piece], names: Names, files: TokenizerFiles) -> list[Piece]:
    """The ids of the model."""
    return pieces


def t5(pieces: list[Piece], names: Names, files: TokenizerFiles) -> list[Piece]:
    """Sentinels after the pieces, the last one first (Raffel et al. 2020)."""
    count = files.size("extra_ids", 100)
    return [*pieces, *_control(f"<extra_id_{index}>" for index in reversed(range(count)))]


def fairseq(*languages: str) -> Layout:
    """fairseq's four special tokens in place of SentencePiece's three; languages and the mask after the pieces."""

    def layout(pieces: list[Piece], names: Names, files: TokenizerFiles) -> list[Piece]:
        if absent := [field for field in ("bos_token", "eos_token") if files.fields.get(field, "") is None]:
            raise ValueError(f"{absent[0]} is null, and a piece of the vocabulary; remove the field")
        begin, pad, end = _control(names[field] for field in ("bos_token", "pad_token", "eos_token"))
        first = [begin, pad, end, Piece(names["unk_token"], 0.0, UNKNOWN)]
        return [*first, *_after_specials(pieces), *_control(languages), _mask(names)]

    return layout


def camembert(pieces: list[Piece], names: Names, files: TokenizerFiles) -> list[Piece]:
    """fairseq's special tokens before all pieces but the unknown one."""
    _after_specials(pieces)
    unused, pad, unused_end, unknown = ("<s>NOTUSED", names["pad_token"], "</s>NOTUSED", names["unk_token"])
    first = [*_control([unused, pad, unused_end]), Piece(unknown, 0.0, UNKNOWN), *_control(["<unk>NOTUSED"])]
    return [*first, *pieces[1:], _mask(names)]


def _after_specials(pieces: list[Piece]) -> list[Piece]:
    """The pieces after the three special ones. Raises ValueError where others come first."""
    if [piece.kind for piece in pieces[:3]] != [UNKNOWN, CONTROL, CONTROL]:
        names = ", ".join(piece.text for piece in pieces[:3])
        raise ValueError(f"its first pieces are {names}, not <unk>, <s>, </s>: their ids are unknown")
    return pieces[3:]


def _control(texts: Iterable[str]) -> list[Piece]:
    return [Piece(text, 0.0, CONTROL) for text in texts]


def _mask(names: Names) -> Piece:
    """The mask, which is added with its spaces later."""
    return Piece(names["mask_token"], 0.0, UNUSED)


def _pairs(folder: Path, **options: str) -> "Tokenizer":
    from tokenizers import Tokenizer, models

    return Tokenizer(models.BPE(*read_pairs(folder / "vocab.json", folder / "merges.txt"), **options))
