"""Rows of a sentence and its neighbours, the sentences before and after it in a document (Kiros et al. 2015)."""

from collections.abc import Iterator, Sequence

import numpy as np

from train import UserError
from train.data.tokens import TokenizedTexts
from train.text.special import SpecialTokens


class SentenceTriples:
    """A row for each sentence between two others of its document; longer ones lose their end.

    text: every sentence; document: that of each, int [N]; length: tokens of a sentence at most, [SEP] included
    shuffled: a row also has the tokens of a random sentence
    """

    buckets, independent_rows = None, True

    def __init__(
        self, text: TokenizedTexts, document: np.ndarray, length: int, specials: SpecialTokens, shuffled: bool = False
    ):
        self.text, self.length, self.specials, self.shuffled = text, length, specials, shuffled
        self._documents = np.flatnonzero(np.diff(document, prepend=-1))  # the first sentence of each
        sizes = text.lengths
        same = document[1:] == document[:-1]
        full = sizes > 0
        self.middles = 1 + np.flatnonzero(same[:-1] & same[1:] & full[:-2] & full[1:-1] & full[2:])
        self.tokens = int(sizes[self.middles].sum())
        used = np.minimum(sizes[self.middles] + 1, length)
        self.padding = float(1 - used.mean() / length) if len(used) else 0.0

    def __len__(self):
        return len(self.middles)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return iter(np.split(self.text.ids, self.text.starts[self._documents[1:]]))

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.skipthought.task`."""
        middles = np.where(rows < 0, -1, self.middles[rows])
        fields: dict[str, np.ndarray] = {}
        fields["tokens"], fields["valid"] = self.sentences(middles)
        for name, step in (("previous", -1), ("following", 1)):
            targets, weights = self.sentences(np.where(rows < 0, -1, middles + step))
            tokens = np.roll(targets, 1, axis=1)
            tokens[:, 0] = self.specials.sep
            fields |= {f"{name}_tokens": tokens, f"{name}_targets": targets}
            fields[f"{name}_weights"] = weights.astype(np.float32)
        if self.shuffled:
            strangers = self.middles[rng.integers(len(self.middles), size=len(rows))]
            fields["shuffled_tokens"], fields["shuffled_valid"] = self.sentences(strangers)
        return fields

    def sentences(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sentences with [SEP] behind each, int32 [B,T], and where they have tokens, int32 [B,T]; -1 is empty."""
        filled = np.flatnonzero(members >= 0)
        starts = self.text.starts[members[filled]]
        sizes = np.zeros(len(members), np.int64)
        sizes[filled] = np.minimum(self.text.lengths[members[filled]], self.length - 1)
        place = np.arange(self.length)
        tokens = np.full((len(members), self.length), self.specials.pad, np.int32)
        tokens[place < sizes[:, None]] = self.text.read(starts, sizes[filled])
        tokens[filled, sizes[filled]] = self.specials.sep
        is_filled = (members >= 0)[:, None]
        return tokens, ((place <= sizes[:, None]) & is_filled).astype(np.int32)


def check_triples(rows: SentenceTriples, documents: Sequence[str]) -> SentenceTriples:
    """The rows. Raises UserError where documents are too short to have any."""
    if documents and not len(rows):
        raise UserError(
            "--task=skipthought needs documents of three sentences or more, and each document here has fewer; say what "
            "a document is with --data.split"
        )
    return rows
