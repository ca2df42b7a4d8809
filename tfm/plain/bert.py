"""BERT's masked language model (Devlin et al. 2018): read a text in both directions, and fill its gaps.

B texts of T tokens that see S tokens, D width, K * G heads of size H, F feed-forward, V vocabulary, M predicted tokens.
`p` are the parameters of `tfm.masked_lm_specs`, a batch has the fields of `--task=mlm`. No dropout, float32.
"""

import jax
import jax.numpy as jnp


def mlm_loss(p, batch, vocab):
    """The mean loss of the predicted tokens of a batch, in nats (section 3.1, task 1)."""
    hidden = encoder(p.encoder, batch["tokens"], batch["segments"], batch["positions"])
    logits = mlm_logits(p, jnp.take_along_axis(hidden, batch["where"][..., None], axis=1))
    logprobs = jax.nn.log_softmax(logits[..., :vocab])  # the rest pads the table
    losses = -jnp.take_along_axis(logprobs, batch["targets"][..., None], axis=-1)[..., 0]
    return jnp.average(losses, weights=batch["weights"])


def mlm_logits(p, x):
    """States x [B,M,D] -> logits [B,M,V]; the output table is that of the embeddings."""
    x = jnp.einsum("BMD,DE->BME", x, p.head.dense.kernel) + p.head.dense.bias
    x = norm(p.head.norm, jax.nn.gelu(x, approximate=False))
    return jnp.einsum("BMD,VD->BMV", x, p.encoder.embed.tokens) + p.head.bias


def encoder(p, tokens, segments, positions):
    """int32 [B,T] each -> states [B,T,D]; a token sees those of its own segment, and padding is one too."""
    x = norm(p.embed.norm, p.embed.tokens[tokens] + p.embed.positions[positions] + p.embed.types[0])
    mask = segments[:, :, None] == segments[:, None, :]
    layers = p.layers.period[0]  # of all layers, each array [L,...]
    return jax.lax.scan(lambda x, layer: (block(layer, x, mask), None), x, layers)[0]


def block(p, x, mask):
    """x [B,T,D], mask [B,T,S] -> [B,T,D]; each norm follows its sum: norm(x + f(x))."""
    x = norm(p.residual.mixer, x + attention(p.mixer, x, mask))
    return norm(p.residual.feed_forward, x + feed_forward(p.feed_forward, x))


def attention(p, x, mask):
    """x [B,T,D], mask [B,T,S] -> [B,T,D] (Vaswani et al. 2017, section 3.2)."""
    q = jnp.einsum("BTD,DKGH->BTKGH", x, p.query.kernel) + p.query.bias
    k = jnp.einsum("BSD,DKH->BSKH", x, p.key.kernel) + p.key.bias
    v = jnp.einsum("BSD,DKH->BSKH", x, p.value.kernel) + p.value.bias
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf))
    heads = jnp.einsum("BKGTS,BSKH->BTKGH", weights, v)
    return jnp.einsum("BTKGH,KGHD->BTD", heads, p.output.kernel) + p.output.bias


def feed_forward(p, x):
    """x [B,T,D] -> [B,T,D]: each token by itself."""
    hidden = jax.nn.gelu(jnp.einsum("BTD,DF->BTF", x, p.up.kernel) + p.up.bias, approximate=False)
    return jnp.einsum("BTF,FD->BTD", hidden, p.down.kernel) + p.down.bias


def norm(p, x):
    """x [...,D] -> [...,D]: mean 0 and variance 1, then a scale and a bias (Ba et al. 2016)."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-12) * p.scale + p.bias
