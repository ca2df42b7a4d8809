"""Batches and rows of equal work: as many texts in every batch as asked for, and nearly as many tokens."""

import numpy as np

# By how much a length may look shorter or longer than it is, so that chance has a say in who shares a batch.
_BLUR = 0.1

# How often every row may take texts from the fullest one.
_EXCHANGES = 3

# The orders in which texts go into rows, of which the best is taken.
_ORDERS = 8


def deal(lengths: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """lengths [N] of texts -> the members of N // `size` batches, int [batches,size], in random order.

    Every batch has one of the longest texts, one of the next ones, and so on; the longer ones of each kind go to the
    batches with fewer tokens. So all batches have nearly as many tokens. N must be a multiple of `size`.
    """
    count = len(lengths) // size
    blurred = lengths * rng.uniform(1 - _BLUR, 1 + _BLUR, len(lengths))
    kinds = np.argsort(-blurred, kind="stable").reshape(size, count)
    totals, members = np.zeros(count, np.int64), np.empty((count, size), np.int64)
    for place, kind in enumerate(kinds):
        longest_first = kind[np.argsort(-lengths[kind], kind="stable")]
        emptiest_first = np.argsort(totals, kind="stable")
        members[emptiest_first, place] = longest_first
        totals[emptiest_first] += lengths[longest_first]
    return members[rng.permutation(count)]


def deal_alike(lengths: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """lengths [N] of texts -> the members of N // `size` batches, int [batches,size], in random order: those of a batch
    are of similar lengths. N must be a multiple of `size`."""
    blurred = lengths * rng.uniform(1 - _BLUR, 1 + _BLUR, len(lengths))
    members = np.argsort(blurred, kind="stable").reshape(-1, size)
    return members[rng.permutation(len(members))]


def share(lengths: np.ndarray, rows: int, slots: int) -> np.ndarray:
    """lengths [E,N] of the texts of E batches -> the text in each of `slots` places of each row, int [E,rows,slots];
    -1 where there is none. All rows of a batch have nearly as many tokens.

    The longest text goes first, each into the row with the fewest tokens (Graham 1969: longest processing time); then
    the fullest rows exchange texts with others. Random orders come after it, and the one whose fullest row has the
    fewest tokens counts.
    """
    seats = _spread(lengths, np.argsort(-lengths, axis=1, kind="stable"), rows, slots)
    fullest, rng = tokens_of_rows(lengths, seats).max(1), np.random.default_rng(0)
    for _ in range(_ORDERS - 1 if rows > 1 else 0):
        again = np.flatnonzero(fullest >= fullest.mean())
        batches = lengths[again]
        trial = _spread(batches, np.argsort(rng.random(batches.shape), axis=1), rows, slots)
        fullest_of_trial = tokens_of_rows(batches, trial).max(1)
        better = fullest_of_trial < fullest[again]
        seats[again[better]], fullest[again[better]] = trial[better], fullest_of_trial[better]
    return seats


def _spread(lengths: np.ndarray, order: np.ndarray, rows: int, slots: int) -> np.ndarray:
    """The seats of texts [E,N], int [E,rows,slots], that go into rows in this order, int [E,N], and are exchanged
    then."""
    batches = np.arange(len(lengths))
    totals, counts = np.zeros((2, len(lengths), rows), np.int64)
    seats = np.full((len(lengths), rows, slots), -1)
    for texts in order.T:
        row = np.where(counts < slots, totals, np.iinfo(np.int64).max).argmin(1)
        seats[batches, row, counts[batches, row]] = texts
        totals[batches, row] += lengths[batches, texts]
        counts[batches, row] += 1
    tokens = _lengths_of(lengths, seats.reshape(len(seats), -1)).reshape(seats.shape)
    for turn in range(_EXCHANGES * rows if rows > 1 else 0):
        _exchange(seats, tokens, totals, turn % (rows - 1))
    return seats


def tokens_of_rows(lengths: np.ndarray, seats: np.ndarray) -> np.ndarray:
    """lengths [E,N] of texts and their seats [E,R,S] -> the tokens of every row, int [E,R]."""
    return _lengths_of(lengths, seats.reshape(len(seats), -1)).reshape(seats.shape).sum(2)


def _exchange(seats: np.ndarray, tokens: np.ndarray, totals: np.ndarray, rank: int) -> None:
    """Lets the fullest row of each batch exchange a text with another row, or give it one, where the fuller of the two
    is less full then. That row has a rank, from the emptiest one on.

    seats: the text of each place, int [E,R,S]
    tokens: of that text, and `totals` those of each row, int [E,R,S] and [E,R]; all three follow the exchange
    """
    batches = np.arange(len(seats))
    order = np.argsort(totals, axis=1, kind="stable")
    fullest, partner = order[:, -1], order[:, rank]
    excess = totals[batches, fullest] - totals[batches, partner]
    moved = tokens[batches, fullest][:, :, None] - tokens[batches, partner][:, None]
    gain = np.minimum(moved, excess[:, None, None] - moved).reshape(len(seats), -1)
    best = gain.argmax(1)
    chosen = np.flatnonzero(gain[batches, best] > 0)
    place, place_of_partner = np.divmod(best[chosen], seats.shape[2])
    first, second = (chosen, fullest[chosen], place), (chosen, partner[chosen], place_of_partner)
    change = tokens[first] - tokens[second]
    totals[first[:2]] -= change
    totals[second[:2]] += change
    for values in (seats, tokens):
        values[first], values[second] = values[second], values[first]


def _lengths_of(lengths: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """lengths [E,N], texts [E,M] -> the length of each, [E,M]; 0 of -1."""
    return np.where(texts < 0, 0, np.take_along_axis(lengths, texts, axis=1))
