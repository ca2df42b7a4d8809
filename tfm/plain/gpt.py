"""GPT (Radford et al. 2018, 2019): predict every token from those before it, and write a text token by token.

The letters are those of bert.py, L stands for layers; `p` are the parameters of `tfm.causal_lm_specs`, a batch has the
fields of `--task=lm`. No dropout, float32.
"""

import jax
import jax.numpy as jnp


def lm_loss(p, batch, vocab):
    """The mean loss of the next tokens of a batch, in nats; without segments and positions a row is a single text."""
    tokens = batch["tokens"]
    segments = batch.get("segments", jnp.ones_like(tokens))
    positions = batch.get("positions", jnp.arange(tokens.shape[1])[None])
    mask = jnp.tri(tokens.shape[1], dtype=bool) & (segments[:, :, None] == segments[:, None, :])
    logits, _ = decoder(p.decoder, tokens, positions, mask)
    logprobs = jax.nn.log_softmax(logits[..., :vocab])  # the rest pads the table
    losses = -jnp.take_along_axis(logprobs, batch["targets"][..., None], axis=-1)[..., 0]
    return jnp.average(losses, weights=batch["weights"])


def generate(p, tokens, lengths, vocab):
    """tokens [B,T], of which the first lengths [B] are prompts -> [B,T]: the most probable token in turn, greedily."""
    layers, _, heads, size = p.decoder.layers.period[0].mixer.key.kernel.shape
    cache = jnp.zeros((layers, 2, *tokens.shape, heads, size))  # keys and values of the tokens so far

    def step(t, state):
        tokens, cache = state
        mask = (jnp.arange(tokens.shape[1]) <= t)[None, None]
        logits, cache = decoder(p.decoder, tokens[:, t, None], jnp.full((1, 1), t), mask, cache, t)
        token = jnp.where(t + 1 < lengths, tokens[:, t + 1], logits[:, 0, :vocab].argmax(-1))
        return tokens.at[:, t + 1].set(token), cache

    return jax.lax.fori_loop(0, tokens.shape[1] - 1, step, (tokens, cache))[0]


def decoder(p, tokens, positions, mask, cache=None, t=None):
    """tokens, positions [B,T], mask [B,T,S] -> logits [B,T,V]; a cache [L,2,B,S,K,H], if any, is filled from t on."""
    x = p.embed.tokens[tokens] + p.embed.positions[positions]
    layers = p.layers.period[0], cache  # of all layers, each array [L,...]
    x, cache = jax.lax.scan(lambda x, layer: block(layer[0], x, mask, layer[1], t), x, layers)
    return jnp.einsum("BTD,VD->BTV", norm(p.norm, x), p.embed.tokens), cache


def block(p, x, mask, cache, t):
    """x [B,T,D], mask [B,T,S] -> [B,T,D], and the cache; each norm precedes its function: x + f(norm(x))."""
    y, cache = attention(p.mixer, norm(p.residual.mixer, x), mask, cache, t)
    x = x + y
    return x + feed_forward(p.feed_forward, norm(p.residual.feed_forward, x)), cache


def attention(p, x, mask, cache, t):
    """x [B,T,D], mask [B,T,S] -> [B,T,D], and the cache [2,B,S,K,H] (Vaswani et al. 2017, section 3.2)."""
    q = jnp.einsum("BTD,DKGH->BTKGH", x, p.query.kernel) + p.query.bias
    k = jnp.einsum("BSD,DKH->BSKH", x, p.key.kernel) + p.key.bias
    v = jnp.einsum("BSD,DKH->BSKH", x, p.value.kernel) + p.value.bias
    if cache is not None:
        cache = jax.lax.dynamic_update_slice_in_dim(cache, jnp.stack([k, v]), t, axis=2)
        k, v = cache
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf))
    heads = jnp.einsum("BKGTS,BSKH->BTKGH", weights, v)
    return jnp.einsum("BTKGH,KGHD->BTD", heads, p.output.kernel) + p.output.bias, cache


def feed_forward(p, x):
    """x [B,T,D] -> [B,T,D]: each token by itself."""
    hidden = jax.nn.gelu(jnp.einsum("BTD,DF->BTF", x, p.up.kernel) + p.up.bias, approximate=True)  # by tanh
    return jnp.einsum("BTF,FD->BTD", hidden, p.down.kernel) + p.down.bias


def norm(p, x):
    """x [...,D] -> [...,D]: mean 0 and variance 1, then a scale and a bias (Ba et al. 2016)."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p.scale + p.bias
