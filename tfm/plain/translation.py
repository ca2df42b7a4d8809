"""The Transformer (Vaswani et al. 2017): an encoder reads a text, and a decoder writes it in another language.

The letters are those of bert.py, S stands for tokens of the source; `p` are the parameters of `tfm.seq2seq_specs`, a
batch has the fields of `--task=translate`. No dropout, float32.
"""

import jax
import jax.numpy as jnp


def translation_loss(p, batch, vocab):
    """The mean loss of the next target tokens of a batch, in nats; the decoder reads the right tokens before them."""
    logits = decoder(p, batch, batch["target"], encoder(p, batch))
    logprobs = jax.nn.log_softmax(logits[..., :vocab])  # the rest pads the table
    smoothing = batch["smoothing"][:, None, None]  # the probability that all tokens share (section 5.4)
    targets = (1 - smoothing) * jax.nn.one_hot(batch["targets"], vocab) + smoothing / vocab
    return -jnp.average((targets * logprobs).sum(-1), weights=batch["weights"])


def translate(p, batch, vocab):
    """target [B,T] of a batch, of which the first token counts -> [B,T], written greedily; gpt.py has a cache."""
    memory, target = encoder(p, batch), batch["target"]
    step = lambda t, target: target.at[:, t + 1].set(decoder(p, batch, target, memory)[:, t, :vocab].argmax(-1))
    return jax.lax.fori_loop(0, target.shape[1] - 1, step, target)


def encoder(p, batch):
    """Tokens, segments and positions [B,S] of a batch -> memory [B,S,D]; a token sees those of its own segment."""
    segments, layers = batch["segments"], p.encoder.layers.period[0]
    mask = segments[:, :, None] == segments[:, None, :]
    x = embed(p, batch["tokens"], batch["positions"])
    return jax.lax.scan(lambda x, layer: (block(layer, x, mask), None), x, layers)[0]


def decoder(p, batch, target, memory):
    """target [B,T], memory [B,S,D] -> logits [B,T,V]; a token sees those before it, and the source of its segment."""
    segments, sources, layers = batch["target_segments"], batch["segments"], p.decoder.layers.period[0]
    mask = jnp.tri(target.shape[1], dtype=bool) & (segments[:, :, None] == segments[:, None, :])
    cross = memory, segments[:, :, None] == sources[:, None, :]
    x = embed(p, target, batch["target_positions"])
    x = jax.lax.scan(lambda x, layer: (block(layer, x, mask, *cross), None), x, layers)[0]
    return jnp.einsum("BTD,VD->BTV", x, p.encoder.embed.tokens)  # one table for sources, targets and outputs


def embed(p, tokens, positions):
    """tokens and positions [B,T] -> [B,T,D], with sines and cosines of the positions (section 3.5)."""
    D = p.encoder.embed.tokens.shape[1]
    angles = positions[..., None] / 10_000 ** (jnp.arange(0, D, 2) / D)
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(*positions.shape, D)
    return p.encoder.embed.tokens[tokens] * D**0.5 + waves


def block(p, x, mask, memory=None, memory_mask=None):
    """x [B,T,D], its mask, memory [B,S,D] and its mask -> [B,T,D]; each norm follows its sum: norm(x + f(x))."""
    x = norm(p.residual.mixer, x + attention(p.mixer, x, x, mask))
    if memory is not None:
        x = norm(p.residual.cross, x + attention(p.cross, x, memory, memory_mask))
    return norm(p.residual.feed_forward, x + feed_forward(p.feed_forward, x))


def attention(p, x, memory, mask):
    """Queries of x [B,T,D], keys and values of memory [B,S,D], mask [B,T,S] -> [B,T,D] (section 3.2)."""
    q = jnp.einsum("BTD,DKGH->BTKGH", x, p.query.kernel) + p.query.bias
    k = jnp.einsum("BSD,DKH->BSKH", memory, p.key.kernel) + p.key.bias
    v = jnp.einsum("BSD,DKH->BSKH", memory, p.value.kernel) + p.value.bias
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -1e30))  # finite: padding may see nothing
    heads = jnp.einsum("BKGTS,BSKH->BTKGH", weights, v)
    return jnp.einsum("BTKGH,KGHD->BTD", heads, p.output.kernel) + p.output.bias


def feed_forward(p, x):
    """x [B,T,D] -> [B,T,D]: each token by itself (eq. 2)."""
    hidden = jax.nn.relu(jnp.einsum("BTD,DF->BTF", x, p.up.kernel) + p.up.bias)
    return jnp.einsum("BTF,FD->BTD", hidden, p.down.kernel) + p.down.bias


def norm(p, x):
    """x [...,D] -> [...,D]: mean 0 and variance 1, then a scale and a bias (Ba et al. 2016)."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p.scale + p.bias
