"""ViT (Dosovitskiy et al. 2021): an image is a text of patches, and the vector before them learns its class.

The letters are those of bert.py, C stands for classes, h and w for the sides of a patch, c for its channels; `p` are
the parameters of `tfm.classifier_specs`, a batch has the fields of `--task=image`. No dropout, float32.
"""

import jax
import jax.numpy as jnp


def image_loss(p, batch):
    """The mean loss of the images of a batch, in nats."""
    logprobs = jax.nn.log_softmax(class_logits(p, batch["pixels"]))
    losses = -(class_targets(batch, logprobs.shape[-1]) * logprobs).sum(-1)
    return jnp.average(losses, weights=batch["weights"])


def class_targets(batch, classes):
    """labels [B] -> probabilities [B,C]; labels of two images may be mixed, and smoothed (Touvron et al. 2021)."""
    targets = jax.nn.one_hot(batch["labels"], classes)
    if "shares" in batch:
        shares = batch["shares"][:, None]
        targets = shares * targets + (1 - shares) * jax.nn.one_hot(batch["partners"], classes)
    smoothing = batch["smoothing"][:, None] if "smoothing" in batch else 0.0
    return (1 - smoothing) * targets + smoothing / classes


def class_logits(p, pixels):
    """pixels [B,height,width,c] -> logits [B,C] of the state of the first vector (eq. 4)."""
    x = encoder(p.encoder, pixels)[:, 0]
    return jnp.einsum("BD,DC->BC", x, p.output.kernel) + p.output.bias


def encoder(p, pixels):
    """pixels [B,height,width,c] -> states [B,T,D] (eq. 1 to 3)."""
    x = patches(p.embed.projection, pixels)
    cls = jnp.broadcast_to(p.embed.cls, (len(x), 1, x.shape[-1]))
    x = jnp.concatenate([cls, x], axis=1) + p.embed.positions
    layers = p.layers.period[0]  # of all layers, each array [L,...]
    return norm(p.norm, jax.lax.scan(lambda x, layer: (block(layer, x), None), x, layers)[0])


def patches(p, pixels):
    """pixels [B,height,width,c] -> [B,T-1,D]: a vector of each patch, in rows y and columns x."""
    (batch, height, width, c), (h, w, _, D) = pixels.shape, p.kernel.shape
    pixels = pixels.reshape(batch, height // h, h, width // w, w, c)
    return jnp.einsum("Byhxwc,hwcD->ByxD", pixels, p.kernel).reshape(batch, -1, D) + p.bias


def block(p, x):
    """x [B,T,D] -> [B,T,D]; each norm precedes its function: x + f(norm(x))."""
    x = x + attention(p.mixer, norm(p.residual.mixer, x))
    return x + feed_forward(p.feed_forward, norm(p.residual.feed_forward, x))


def attention(p, x):
    """x [B,T,D] -> [B,T,D]; every vector sees all of its image (Vaswani et al. 2017, section 3.2)."""
    q = jnp.einsum("BTD,DKGH->BTKGH", x, p.query.kernel) + p.query.bias
    k = jnp.einsum("BSD,DKH->BSKH", x, p.key.kernel) + p.key.bias
    v = jnp.einsum("BSD,DKH->BSKH", x, p.value.kernel) + p.value.bias
    weights = jax.nn.softmax(jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / q.shape[-1] ** 0.5)
    heads = jnp.einsum("BKGTS,BSKH->BTKGH", weights, v)
    return jnp.einsum("BTKGH,KGHD->BTD", heads, p.output.kernel) + p.output.bias


def feed_forward(p, x):
    """x [B,T,D] -> [B,T,D]: each vector by itself."""
    hidden = jax.nn.gelu(jnp.einsum("BTD,DF->BTF", x, p.up.kernel) + p.up.bias, approximate=False)
    return jnp.einsum("BTF,FD->BTD", hidden, p.down.kernel) + p.down.bias


def norm(p, x):
    """x [...,D] -> [...,D]: mean 0 and variance 1, then a scale and a bias (Ba et al. 2016)."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * p.scale + p.bias
