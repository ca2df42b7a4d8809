"""Words that a model has never read, from word vectors: a linear map leads from one space to the other (Kiros et al.
2015, section 2.2; Mikolov et al. 2013)."""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from train import UserError
from train.data.tokens import TokenizedTexts, in_memory
from train.text.word_vectors import WordVectors


@final
class Expansion:
    """`encode(texts)` -> tokens, of which new words have ids behind the table, and the rows of these words.

    Words are what the tokenizer splits a text into before it looks for tokens. A word that is a token stays one, one
    that has a vector becomes a new one, and any other is cut into tokens. Raises UserError where the tokenizer and the
    file of vectors share too few words to fit the map, by least squares.
    """

    def __init__(self, path: str, table: np.ndarray, tokenizer):
        self.vectors, self.tokenizer, self.first = WordVectors(path), tokenizer, len(table)
        ids: Mapping[str, int] = tokenizer.get_vocab()
        shared = [word for word in ids if word.isalpha() and self.vectors[word] is not None]
        if len(shared) <= self.vectors.size:
            raise UserError(
                f"--expand={path} shares {len(shared):,} words with the tokenizer, too few to map "
                f"{self.vectors.size} numbers of a vector; take smaller vectors, or a model with --tokenizer.kind=word"
            )
        inputs = np.stack([np.asarray(self.vectors[word]) for word in shared]).astype(np.float64)
        targets = table[[ids[word] for word in shared]].astype(np.float64)
        self.map = np.linalg.lstsq(inputs, targets, rcond=None)[0]

    def encode(self, texts: Sequence[str]) -> tuple[TokenizedTexts, np.ndarray]:
        """The tokens of the texts, and the rows [N,U] of new words, float32."""
        new: dict[str, int] = {}
        text_ids = [self._ids(text, new) for text in texts]
        ids = np.concatenate([np.asarray(ids, np.int64) for ids in text_ids])
        vectors = np.stack([np.asarray(self.vectors[word]) for word in new]) if new else np.zeros((0, len(self.map)))
        return TokenizedTexts(ids, np.cumsum([0, *map(len, text_ids)])), (vectors @ self.map).astype(np.float32)

    def _ids(self, text: str, new: dict[str, int]) -> list[int]:
        """The ids of a text; words that are met for the first time are added to `new`."""
        normalizer, splitter = self.tokenizer.normalizer, self.tokenizer.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer else text
        ids: list[int] = []
        for word, _ in splitter.pre_tokenize_str(text) if splitter else [(text, None)]:
            token = self.tokenizer.token_to_id(word)
            if token is not None:
                ids.append(token)
            elif self.vectors[word] is not None:
                ids.append(new.setdefault(word, self.first + len(new)))
            else:
                ids += in_memory(self.tokenizer, [word]).ids.tolist()
        return ids
