"""DaViT against the vision backbone of Florence-2 in transformers: its weights, put where ours are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.parity

# Patches of images of 80 pixels: 20 x 20, 10 x 10 and 5 x 5, in windows of 4 x 4, for which two grids are filled up.
WIDTHS, DEPTHS, HEADS, GROUPS = (16, 32, 48), (1, 2, 1), (2, 4, 6), (2, 4, 6)
CONFIG = tfm.override(
    tfm.Config(),
    {"layers": 2, "width": 16, "heads": 2, "norm_eps": 1e-5, "dropout": 0.0, "position": "none"}
    | {"input": "patches", "input.size": 80, "input.patch": 4, "input.kernel": 7, "input.cls": False}
    | {"input.norm": True, "residual": "conditional", "mixer.pattern": "windows", "mixer.pattern.window": 4}
    | {"period": 2, "period.1.mixer": "channel_groups"}
    | {"stages": 2, "stages.kernel": 3, "stages.norm": "first", "stages.bias": True}
    | {"stages.0.layers": 4, "stages.1.width": 48, "stages.1.heads": 6},
)


@pytest.fixture(scope="module")
def torch_backbone():
    import torch
    from transformers.models.florence2 import Florence2VisionConfig
    from transformers.models.florence2.modeling_florence2 import Florence2VisionBackbone

    torch.manual_seed(0)
    model = Florence2VisionBackbone(
        Florence2VisionConfig(
            embed_dim=WIDTHS, depths=DEPTHS, num_heads=HEADS, num_groups=GROUPS, window_size=4, patch_size=(7, 3, 3),
            patch_stride=(4, 2, 2), patch_padding=(3, 1, 1), patch_prenorm=(False, True, True),
            attn_implementation="eager",
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
    return model


def linear(weights, name, *shape):
    """A linear map [in, out] in the shape of ours."""
    return tfm.Linear(weights[f"{name}.weight"].T.reshape(shape), weights[f"{name}.bias"].reshape(shape[1:]))


def norm(weights, name):
    return tfm.Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])


def stage_of(weights, specs, index):
    """The parameters of a stage, whose spec tree is `specs`."""
    width, count = WIDTHS[index], HEADS[index]
    conv = weights[f"convs.{index}.conv.weight"].transpose(3, 2, 1, 0)  # columns, rows, channels, width
    kernel = conv.transpose(1, 0, 2, 3) if index == 0 else conv
    projection = tfm.Linear(kernel, weights[f"convs.{index}.conv.bias"])
    embed = specs.embed.replace(projection=projection, norm=norm(weights, f"convs.{index}.norm"))

    def block(depth, part, attention, tree):
        name = f"blocks.{index}.{depth}.{part}"
        size, heads = width // count, f"{name}.{attention}"
        parts = [weights[f"{heads}.qkv.{leaf}"].reshape(3, width, -1) for leaf in ("weight", "bias")]
        query, key, value = (
            tfm.Linear(kernel.T.reshape(width, count, size), bias.reshape(count, size))
            for kernel, bias in zip(*parts, strict=True)
        )
        query = tfm.Linear(query.kernel.reshape(width, count, 1, size), query.bias.reshape(count, 1, size))
        output = weights[f"{heads}.proj.weight"].T.reshape(count, 1, size, width)
        convolutions = {
            sublayer: tree.residual.convolutions[sublayer].replace(
                weights=weights[f"{name}.conv{index}.weight"][:, 0].transpose(1, 2, 0),
                bias=weights[f"{name}.conv{index}.bias"],
            )
            for index, sublayer in enumerate(("mixer", "feed_forward"), 1)
        }
        norms = tree.residual.norms.replace(
            mixer=norm(weights, f"{name}.norm1"), feed_forward=norm(weights, f"{name}.norm2")
        )
        return tree.replace(
            mixer=tree.mixer.replace(
                query=query, key=key, value=value, output=tfm.Linear(output, weights[f"{heads}.proj.bias"])
            ),
            feed_forward=tree.feed_forward.replace(
                up=linear(weights, f"{name}.ffn.fc1", width, 4 * width),
                down=linear(weights, f"{name}.ffn.fc2", 4 * width, width),
            ),
            residual=tree.residual.replace(norms=norms, convolutions=convolutions),
        )

    kinds = zip(("spatial_block", "channel_block"), ("window_attn", "channel_attn"), specs.layers.period, strict=True)
    period = tuple(
        jax.tree.map(lambda *rows: np.stack(rows), *(block(depth, *kind) for depth in range(DEPTHS[index])))
        for kind in kinds
    )
    return specs.replace(embed=embed, layers=specs.layers.replace(period=period))


def test_the_states_of_the_last_stage_are_those_of_the_backbone(torch_backbone):
    """Before the last norm, which the backbone does not have."""
    import torch

    weights = {name: values.numpy() for name, values in torch_backbone.state_dict().items()}
    specs = tfm.encoder_specs(CONFIG)
    first, *later = (stage_of(weights, stage, index) for index, stage in enumerate((specs, *specs.stages)))
    params = first.replace(stages=(*later[:-1], later[-1].replace(norm=None)))
    images = np.random.default_rng(0).normal(size=(2, 80, 80, 3)).astype(np.float32)
    with torch.no_grad():
        expected = torch_backbone(torch.from_numpy(images.transpose(0, 3, 1, 2))).last_hidden_state
    expected = expected.numpy().reshape(2, 48, 25).transpose(0, 2, 1)
    actual = tfm.encoder(params, CONFIG, jnp.asarray(images))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
