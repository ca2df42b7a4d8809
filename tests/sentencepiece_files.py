"""SentencePiece models of odd strings, as the folders of transformers have them."""

import io
import json
import struct

from odd_strings import odd_strings

from train.text import sentencepiece_model

CORPUS = list(odd_strings(2000, seed=1))
ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def pieces(name, texts=CORPUS, **options):
    """A SentencePiece model of the texts, under a name."""
    import sentencepiece

    model, lines = io.BytesIO(), [text.replace("\n", " ") for text in texts]
    common = {"vocab_size": 900, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 0.98}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **common | options)
    return {name: model.getvalue()}


def piece(text, score=0.0, kind=1):
    """A SentencePiece message: text, score and kind."""
    data = text.encode()
    body = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(body)]) + body


def model(*texts, kind=sentencepiece_model.UNIGRAM, further=b""):
    """A model of these pieces after <unk>, <s> and </s>, which prepares texts as by default."""
    special = piece("<unk>", kind=2) + piece("<s>", kind=3) + piece("</s>", kind=3)
    return special + b"".join(map(piece, texts)) + further + b"\x12\x02\x18" + bytes([kind]) + b"\x1a\x02\x18\x01"


def fairseq(**options):
    return pieces("sentencepiece.bpe.model", **options)


def m2m_100():
    """A SentencePiece model of pairs, and ids for its pieces in the order of their texts."""
    files = fairseq(model_type="bpe")
    parsed = sentencepiece_model.parse(files["sentencepiece.bpe.model"])
    texts = [*ANGLES[:4], *sorted(piece.text for piece in parsed.pieces[3:])]
    return files | {"vocab.json": json.dumps({text: index for index, text in enumerate(texts)})}
