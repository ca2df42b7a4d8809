"""Switch Transformers (Fedus et al. 2022): T5, some of whose feed-forward layers are experts, one of a token."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from tfm.catalogue.options.feed_forwards import Experts
from tfm.config.feed_forwards import PositionWise
from tfm.config.model import MAX_SIZES, Config, Kind, Layer
from tfm.hf.facts import agreed
from tfm.hf.families.period import period_values, shortest_period
from tfm.hf.families.seq2seq import t5
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Range
from tfm.options.json_text import Json

# The activations that have no gate.
ACTIVATIONS = {name: t5.ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_new", "silu")}
_LAYERS = MAX_SIZES["layers"]
_ACTIVATION = ("feed_forward_proj", *t5.ACTIVATION_PARTS)
_SHAPE: dict[str, Json] = {"num_layers": 12, "num_decoder_layers": 12, "d_model": 768, "num_heads": 12}


def are_sparse(layers: int, count: int) -> list[bool]:
    """Which layers of a stack have experts, where `num_sparse_*_layers` is a count: from the second one on, every
    layers // count-th; with as many as layers all of them, and with more none, as transformers computes it."""
    step = layers // count if count else layers
    return [step == 1 or (step > 1 and layer % step == 1) for layer in range(layers)]


def read(fields: Fields) -> Reading:
    """The fields of T5, and the layers of both stacks."""
    fields = {**_SHAPE, **fields}
    values, used = t5.read({name: value for name, value in fields.items() if name not in _ACTIVATION})
    stacks = {"decoder": "num_decoder_layers", "encoder": "num_layers"}
    layers: dict[str, list[Layer]] = {}
    for stack, name in stacks.items():
        count = fields[name] or fields["num_layers"]
        sparse, step = f"num_sparse_{stack}_layers", f"{stack}_sparse_step"
        experts = fields.get(sparse, 3)
        expected = count // experts if experts else count
        agreed(
            {
                step: fields.get(step),
                f"{sparse}={experts} of {count} layers ({name}={fields[name]}), so {step}": expected,
            }
        )
        layers[stack] = [Layer() if is_sparse else _DENSE for is_sparse in are_sparse(count, experts)]
        used = used | {sparse, step}
    values |= period_values(layers["decoder"])
    if shortest_period(layers["encoder"]) != shortest_period(layers["decoder"]):
        values |= period_values(layers["encoder"], "encoder.period")
    return values | {"head.scale_logits": True}, used - {*t5.ACTIVATION_PARTS, "scale_decoder_outputs"}


_DENSE = Layer(feed_forward=PositionWise())
_UNTAKEN = ("feed_forward_proj", "tie_word_embeddings")


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    fields = {name: value for name, value in t5.write(config).items() if name != "scale_decoder_outputs"}
    for stack, of_stack in {"decoder": config, "encoder": config.in_encoder()}.items():
        fields[f"num_sparse_{stack}_layers"] = _count(of_stack.layer_plan.layers)
    return fields


def _count(kinds: Sequence[Kind]) -> int:
    """The `num_sparse_*_layers` of a stack: how many have experts, or what gives these; 0 where nothing does."""
    have_experts, layers = [isinstance(kind.feed_forward, Experts) for kind in kinds], len(kinds)
    counts = sum(have_experts), *range(layers + 2)
    return next((count for count in counts if are_sparse(layers, count) == have_experts), 0)


def names(config: Config) -> dict[str, str | HfTensor]:
    """The tensors of T5 under other names of the feed-forward layers, and those of experts."""
    tensors: dict[str, str | HfTensor] = {}
    for path, entry in t5.names(config).items():
        tensors[path] = entry.replace("DenseReluDense", "mlp") if isinstance(entry, str) else entry
    for stack in ("encoder", "decoder"):
        layer = f"{stack}.layers.feed_forward"
        module = str(tensors[f"{layer}.up"]).removesuffix(".wi")
        expert = f"{module}.experts.expert_{{x}}"
        tensors |= {
            f"{layer}.experts.router": f"{module}.router.classifier",
            f"{layer}.experts.up": HfTensor(f"{expert}.wi.weight", axes="FD"),
            f"{layer}.experts.down": HfTensor(f"{expert}.wo.weight", axes="DF"),
            f"{layer}.load.observed": HfTensor(""),
        }
    return tensors


SWITCH_TRANSFORMERS = Family(
    name="switch_transformers",
    prefix="",
    base=dataclasses.replace(t5.T5.base, feed_forward=Experts(top_k=1)),
    fields={name: field for name, field in t5.T5.fields.items() if name not in _UNTAKEN}
    | {
        "d_model": HfField("width", 768),
        "num_heads": HfField("heads", 12),
        "dense_act_fn": HfField("activation", "relu", ACTIVATIONS),
        "num_experts": HfField("feed_forward.experts", 8),
        "expert_capacity": HfField("feed_forward.slots", 64),
        "router_aux_loss_coef": HfField("feed_forward.balance", 0.001),
        "router_z_loss_coef": HfField("feed_forward.z", 0.001),
    },
    # Without a tie, transformers gives each stack a table of tokens of its own.
    allowed=dict(t5.T5.allowed)
    | {"tie_word_embeddings": (True,), "router_bias": (False,), "router_dtype": ("float32",)},
    aliases=t5.ALIASES,
    ignored=dict(t5.T5.ignored)
    | because(UNREAD, "feed_forward_proj is_gated_act router_ignore_padding_tokens router_type num_selected_experts")
    | because(UNREAD, "batch_prioritized_routing add_cross_attention")
    | because(CODE, "add_router_probs output_router_logits")
    | because(TRAINING, "router_jitter_noise"),
    types={f"num_sparse_{stack}_layers": Annotated[int, Range(0, _LAYERS)] for stack in ("encoder", "decoder")}
    | {f"{stack}_sparse_step": int | None for stack in ("encoder", "decoder")},
    read=read,
    write=write,
    names=names,
    heads={"SwitchTransformersForConditionalGeneration": HfHead("seq2seq")},
    unused=t5.T5.unused,
    copies=t5.T5.copies,
)
