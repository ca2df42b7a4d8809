from typing import Any

import numpy as np

from oracles import heads, output, softmax


def seen_in_buckets(buckets: np.ndarray, chunk: int, causal: bool) -> np.ndarray:
    """buckets [T,R] -> bool [T,T]: what a token sees of its buckets, and itself only where it sees nothing else.

    A token of bucket b, before which there are n tokens of b, is in chunk n // chunk of b. It sees its own chunk and
    the one before.
    """
    length, rounds = buckets.shape
    chunks = [[sum(buckets[:t, r] == buckets[t, r]) // chunk for r in range(rounds)] for t in range(length)]
    seen = np.zeros((length, length), bool)
    for i in range(length):
        for j in range(i + 1 if causal else length):
            adjacent = [chunks[i][r] - chunks[j][r] in (0, 1) for r in range(rounds) if buckets[i, r] == buckets[j, r]]
            seen[i, j] = i != j and any(adjacent)
        seen[i, i] = not seen[i].any()
    return seen


def bucket_attention(
    scores: np.ndarray, v: np.ndarray, buckets: np.ndarray, chunk: int, causal: bool = False
) -> np.ndarray:
    """scores [B,K,G,T,T], v [B,T,K,G,H] and buckets [B,T,K,G,R] -> [B,T,K,G,H]: softmax over all that is seen."""
    seen = np.zeros(scores.shape, bool)
    for b, k, g in np.ndindex(scores.shape[:3]):
        seen[b, k, g] = seen_in_buckets(buckets[b, :, k, g], chunk, causal)
    return np.einsum("bkgts,bskgh->btkgh", softmax(np.where(seen, scores, -np.inf)), v)


def shared_heads(params: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Queries, which are keys too, and values [B,T,K,G,H]."""
    q = np.einsum("btd,dkgh->btkgh", x, np.asarray(params.query.kernel)) + np.asarray(params.query.bias)
    v = np.einsum("btd,dkh->btkh", x, np.asarray(params.value.kernel)) + np.asarray(params.value.bias)
    return q, np.broadcast_to(v[:, :, :, None], q.shape)


def reformer(params: Any, x: np.ndarray, chunk: int, causal: bool = False) -> np.ndarray:
    """Kitaev et al. 2020: softmax attention over the union of rounds (eq. 3), hashes by section 2.2."""
    q, v = shared_heads(params.attention, x)
    k = q / np.linalg.norm(q, axis=-1, keepdims=True)
    rotated = np.einsum("btkgh,kghrn->btkgrn", k, np.asarray(params.rotations, np.float64))
    buckets = np.concatenate([rotated, -rotated], axis=-1).argmax(-1)
    scores = np.einsum("btkgh,bskgh->bkgts", q, k)
    return output(params.attention, bucket_attention(scores, v, buckets, chunk, causal))


def reformer_across(params: Any, x: np.ndarray, chunk: int, sizes: tuple[int, ...], causal: bool = False) -> np.ndarray:
    """The same with chunks out of all buckets and rounds, each of which sees the one before it; buckets of several
    hashes. A token that two rounds show counts twice, as in the rounds of section 2.2 that are added."""
    q, v = shared_heads(params.attention, x)
    k = q / np.linalg.norm(q, axis=-1, keepdims=True)
    rotated = np.einsum("btkgh,kghrn->btkgrn", k, np.asarray(params.rotations, np.float64))
    y = np.zeros(q.shape)
    for b, head, group in np.ndindex(q.shape[0], *q.shape[2:4]):
        rows = (rows[b, :, head, group] for rows in (q, k, v, rotated))
        y[b, :, head, group] = _across(*rows, chunk, sizes, causal)
    return output(params.attention, y)


def _across(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, rotated: np.ndarray, chunk: int, sizes: tuple[int, ...], causal: bool
) -> np.ndarray:
    """q, k, v [T,H] and rotated keys [T,R,n] of one head -> [T,H].

    A token that sees no other in any round has its own value, weighted by `_weight_of_itself`.
    """
    places: list[tuple[int, int]] = []  # round and token, -1 for padding, of each place
    for r in range(rotated.shape[1]):
        buckets = [_bucket(rotated[t, r], sizes) for t in range(len(q))]
        places += [(r, t) for t in sorted(range(len(q)), key=lambda t, buckets=buckets: buckets[t])]
        places += [(r, -1)] * (-len(q) % chunk)
    count = len(places) // chunk
    numerators, sums = np.zeros(v.shape), np.zeros(len(q))
    own: dict[int, list[int]] = {}
    for place, (_, token) in enumerate(places):
        starts = {place // chunk * chunk, (place // chunk - 1) % count * chunk}
        seen = [places[start + n][1] for start in starts for n in range(chunk)]
        candidates = [t for t in seen if t not in (token, -1) and (t < token or not causal)]
        own.setdefault(token, []).append(seen.count(token))
        for t in candidates if token >= 0 else []:
            weight = np.exp(q[token] @ k[t])
            numerators[token] += weight * v[t]
            sums[token] += weight
    for token in np.flatnonzero(sums == 0):
        numerators[token], sums[token] = _weight_of_itself(own[token]) * v[token], 1
    return numerators / sums[:, None]


def _weight_of_itself(counts: list[int]) -> float:
    """How much a token that sees only itself takes of its value, from how often each round shows it.

    Its score is -1e5. The logarithms of the sums of rounds, and of all of them, are float32 numbers, as in
    transformers, so that the weights do not sum to 1.
    """
    masses = np.float32(np.log(counts) - 1e5).astype(np.float64)
    mass = np.float64(np.float32(masses.max() + np.log(np.exp(masses - masses.max()).sum())))
    return sum(counts) * np.exp(-1e5 - mass)


def _bucket(rotated: np.ndarray, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The hashes of a token, the last of which sorts first."""
    parts = np.split(rotated, np.cumsum([size // 2 for size in sizes])[:-1])
    return tuple(int(np.concatenate([part, -part]).argmax()) for part in parts)[::-1]


def routing(params: Any, x: np.ndarray, chunk: int, causal: bool = False) -> np.ndarray:
    """Roy et al. 2021, eq. 8: softmax attention among the tokens of the nearest centroid."""
    scores, v, distances = _scores_and_distances(params, x)
    return output(params.attention, bucket_attention(scores, v, distances.argmin(-1)[..., None], chunk, causal))


def routing_window(params: Any, x: np.ndarray, window: int) -> np.ndarray:
    """Roy et al. 2021, algorithm 1, queries being keys: attention among the nearest tokens of each centroid, one by
    one."""
    scores, v, distances = _scores_and_distances(params, x)
    sums, counts = np.zeros(v.shape), np.zeros(v.shape[:4])
    for b, head, group, cluster in np.ndindex(len(x), *v.shape[2:4], distances.shape[-1]):
        members = np.argsort(distances[b, :, head, group, cluster])[:window]
        for t in members:
            sums[b, t, head, group] += softmax(scores[b, head, group, t, members]) @ v[b, members, head, group]
            counts[b, t, head, group] += 1
    return output(params.attention, sums / np.maximum(counts, 1)[..., None])


def _scores_and_distances(params: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores [B,K,G,T,T], values [B,T,K,G,H] and the squares of distances to centroids [B,T,K,G,c]."""
    q, v = shared_heads(params.attention, x)
    k = (q - q.mean(-1, keepdims=True)) / np.sqrt(q.var(-1, keepdims=True) + 1e-6)
    clusters = np.asarray(params.clusters, np.float64)
    distances = np.square(k[..., None, :] - clusters[..., :-1] / clusters[..., -1:]).sum(-1)
    return np.einsum("btkgh,bskgh->bkgts", k, k) * k.shape[-1] ** -0.5, v, distances


def sinkhorn(
    params: Any, x: np.ndarray, block: int, iterations: int, temperature: float, causal: bool = False
) -> np.ndarray:
    """Tay et al. 2020, section 3: every block, every head, on its own."""
    q, k, v = heads(params.attention, x)
    starts = range(0, x.shape[1], block)
    sums = np.stack([x[:, : start + 1].sum(1) if causal else x[:, start : start + block].sum(1) for start in starts], 1)
    kernel, bias = (
        np.asarray(leaf, np.float64)[..., : len(starts)] for leaf in (params.blocks.kernel, params.blocks.bias)
    )
    scores = np.einsum("bnd,dkm->bknm", sums, kernel) + bias[None, :, None]
    mixture = _normalized((np.maximum(scores, 0) + 1e-6) ** (1 / temperature), iterations, causal)
    y = np.zeros(q.shape)
    for b, n, head, group in np.ndindex(len(x), len(starts), *q.shape[2:4]):

        def seen(rows: np.ndarray, end: int, n: int = n, weights: np.ndarray = mixture[b, head, n]) -> np.ndarray:
            """rows [T,H] -> those of the mixture [b,H], and the rows of the block up to an end; a block that is cut
            short adds less to the mixture."""
            mixed = np.zeros((min(block, len(rows)), rows.shape[1]))
            for start, weight in zip(starts, weights, strict=True):
                mixed[: len(rows[start : start + block])] += weight * rows[start : start + block]
            own = rows[starts[n] : end]
            return own if causal and n == 0 else np.concatenate([mixed, own])

        for t in range(starts[n], min(starts[n] + block, x.shape[1])):
            end = t + 1 if causal else starts[n] + block
            keys, values = (seen(rows[b, :, head, group], end) for rows in (k, v))
            y[b, t, head, group] = softmax(keys @ q[b, t, head, group] * q.shape[-1] ** -0.5) @ values
    return output(params.attention, y)


def _normalized(mixture: np.ndarray, iterations: int, causal: bool) -> np.ndarray:
    """Positive numbers [B,K,n,n] -> mixtures: rows and columns are divided by their sums, in turn.

    A block of a decoder mixes earlier blocks only. A number is divided by the sum of its column down to its own row.
    """
    if causal:
        mixture = np.tril(mixture, -1)
    for _ in range(iterations):
        mixture = mixture / np.maximum(mixture.sum(3, keepdims=True), np.finfo(np.float64).tiny)
        columns = np.cumsum(mixture, 2) if causal else mixture.sum(2, keepdims=True)
        mixture = mixture / np.maximum(columns, np.finfo(np.float64).tiny)
    return mixture
