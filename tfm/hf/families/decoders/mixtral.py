"""Mixtral (Jiang et al. 2024): Mistral, whose feed-forward layers are experts."""

import dataclasses

from tfm.catalogue.options.feed_forwards import Experts
from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.hf.families.decoders import llama
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, OTHER_LAYERS, Fields, because
from tfm.hf.parameters import HfTensor, Names
from tfm.options.json_text import Json

_EXPERT = f"{llama.LAYER}.block_sparse_moe.experts.{{x}}"
NAMES: Names = {name: tensor for name, tensor in llama.NAMES.items() if ".feed_forward." not in name} | in_both(
    {
        "decoder.layers.feed_forward.experts.router": f"{llama.LAYER}.block_sparse_moe.gate",
        "decoder.layers.feed_forward.experts.gate": HfTensor(f"{_EXPERT}.w1.weight", axes="FD"),
        "decoder.layers.feed_forward.experts.up": HfTensor(f"{_EXPERT}.w3.weight", axes="FD"),
        "decoder.layers.feed_forward.experts.down": HfTensor(f"{_EXPERT}.w2.weight", axes="DF"),
        "decoder.layers.feed_forward.load.observed": HfTensor(""),
    }
)


# Without a field, its base is a hundred times that of Mistral.
_READ = llama.reader("mixtral", 8, windows=llama.mistral_windows, position=Rotary(base=1e6))


def read(fields: Fields) -> Reading:
    """Those of Mistral. Raises ValueError for one expert of a token, whose weight is 1 whatever the router says."""
    if fields.get("num_experts_per_tok", 2) == 1:
        raise ValueError("config.json has num_experts_per_tok=1; of mixtral, 2 or more are supported")
    return _READ({"sliding_window": None, **fields})


def write(config: Config) -> dict[str, Json]:
    """Those of Mistral; all layers have the same window."""
    fields = llama.write_windows(config)
    return {name: value for name, value in fields.items() if name != "layer_types"}


MIXTRAL = Family(
    name="mixtral",
    prefix="model.",
    base=dataclasses.replace(llama.BASE, feed_forward=Experts()),
    fields=llama.FIELDS
    | {
        "intermediate_size": HfField("ffn", 14336),
        "max_position_embeddings": HfField("length", 131072),
        "rms_norm_eps": HfField("norm_eps", 1e-5),
        "num_local_experts": HfField("feed_forward.experts", 8),
        "num_experts_per_tok": HfField("feed_forward.top_k", 2),
        "router_aux_loss_coef": HfField("feed_forward.balance", 0.001),
    },
    allowed={"router_jitter_noise": (0.0,)},
    ignored=because(CODE, "output_router_logits") | because(OTHER_LAYERS, "sliding_window"),
    read=read,
    write=write,
    names=NAMES,
    heads={"MixtralForCausalLM": HfHead("lm")} | bare("MixtralModel"),
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
    copies=llama.COPIES,
)
