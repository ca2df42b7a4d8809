"""Mixers for long texts in PyTorch, as their usual packages compute them: peers of `train.bench`.

Sums of features of keys, elu(x) + 1 or random ones, run over chunks of a text where it is a decoder's. Softmax with a
sliding window is the layer of Longformer in transformers, for encoders.
"""

import torch
from torch import nn
from torch.nn import functional

from train.lab.timing.peers.work import PlainShape

# Tokens of a chunk of the running sums of decoders.
_CHUNK = 128


def mixer_of(shape: PlainShape) -> nn.Module | None:
    """The mixer of a shape; None for plain softmax attention. Raises ValueError for one that is not here."""
    options = shape["mixer"]
    name, pattern = options["name"], options.get("pattern", {}).get("name")
    if (name, pattern) == ("softmax", "full"):
        return None
    if shape["dropout"]:
        raise ValueError(f"dropout={shape['dropout']} has a peer for plain attention, not for mixer={name}")
    if name == "linear" or "features" in options:
        return FeatureAttention(shape["width"], shape["heads"], options.get("features"))
    if pattern == "sliding" and shape["model"] == "bert":
        return Longformer(shape["width"], shape["heads"], options["pattern"]["window"])
    raise ValueError(f"mixer={name} of {shape['model']} has no peer; linear, random features and, for bert, sliding do")


class FeatureAttention(nn.Module):
    """Linear attention (Katharopoulos et al. 2020, eq. 5 and 9), of elu(x) + 1, or of `features` random features of
    FAVOR+ (Choromanski et al. 2021)."""

    def __init__(self, width: int, heads: int, features: int | None):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        if features is not None:
            self.register_buffer("projection", torch.randn(features, width // heads))
        self.features = features

    def forward(self, x, memory, causal: bool):
        """[B,T,D] -> [B,T,D]."""
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key = self._phi(query, over=-1), self._phi(key, over=(-1, -2))
        heads = _running(query, key, value) if causal else _total(query, key, value)
        return self.output(heads.transpose(1, 2).reshape(batch, length, width))

    def _phi(self, x, over):
        """Features [B,N,T,m] of [B,N,T,H]; the largest exponents of these axes become 0."""
        if self.features is None:
            return functional.elu(x) + 1
        x = x * x.shape[-1] ** -0.25
        products, norms = x @ self.projection.T, x.square().sum(-1, keepdim=True) / 2
        return torch.exp(products - norms - products.amax(over, keepdim=True).detach()) + 1e-4


def _total(query, key, value):
    """Features of queries and keys [B,N,T,m], values [B,N,T,H] -> [B,N,T,H]; every token sees all."""
    sums = query @ key.sum(-2).unsqueeze(-1)
    return query @ (key.transpose(-1, -2) @ value) / sums


def _running(query, key, value):
    """`_total` where a token sees those before it and itself: cumulative sums of outer products, a chunk at a time."""
    state, total = key.new_zeros(()), key.new_zeros(())
    results = []
    for q, k, v in zip(*(x.split(_CHUNK, dim=-2) for x in (query, key, value)), strict=True):
        totals = total + k.cumsum(-2)
        states = state + torch.einsum("...td,...te->...tde", k, v).cumsum(-3)
        results.append(torch.einsum("...td,...tde->...te", q, states) / (q * totals).sum(-1, keepdim=True))
        state, total = states[..., -1:, :, :], totals[..., -1:, :]
    return torch.cat(results, dim=-2)


class Longformer(nn.Module):
    """The layer of transformers, without global tokens."""

    def __init__(self, width: int, heads: int, window: int):
        super().__init__()
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        config = LongformerConfig(
            hidden_size=width, num_attention_heads=heads, attention_window=[window], attention_probs_dropout_prob=0.0
        )
        self.attention, self.output = LongformerSelfAttention(config, 0), nn.Linear(width, width)
        for name in ("query_global", "key_global", "value_global"):
            setattr(self.attention, name, None)

    def forward(self, x, memory, causal: bool):
        """[B,T,D] -> [B,T,D]; T is a multiple of the window."""
        seen = torch.zeros(x.shape[:2], device=x.device, dtype=x.dtype)
        nowhere = torch.zeros_like(seen, dtype=torch.bool)
        heads = self.attention(x, seen, is_index_masked=nowhere, is_index_global_attn=nowhere, is_global_attn=False)
        return self.output(heads[0])
