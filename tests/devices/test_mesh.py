"""How a run arranges its devices, and what it says of it."""

import dataclasses

import jax
import pytest

import tfm
from train.devices import mesh
from train.settings.schema import Batch, Mesh
from train.tasks.table import AnyRun

SPECS = tfm.masked_lm_specs(tfm.Config(layers=1, width=32, heads=6, kv_heads=3, head_size=4, ffn=64, vocab=100))


@pytest.mark.parametrize(
    ("params", "memory", "widths", "fsdp", "reason"),
    [
        (
            10**8,
            16e9,
            (768,),
            1,
            "mesh.fsdp=1: parameters, gradients and moments take 1.6 GB, which every device can hold",
        ),
        (
            10**9,
            None,
            (768,),
            1,
            "mesh.fsdp=1: parameters, gradients and moments take 16.0 GB, which every device can hold",
        ),
        (
            10**9,
            16e9,
            (768,),
            2,
            "mesh.fsdp=2: parameters, gradients and moments take 16.0 GB, and a device has 16.0 GB",
        ),
        (
            7 * 10**9,
            80e9,
            (4096,),
            4,
            "mesh.fsdp=4: parameters, gradients and moments take 112.0 GB, and a device has 80.0 GB",
        ),
        (
            7 * 10**9,
            32e9,
            (4096, 4100),
            4,
            "mesh.fsdp=4: parameters, gradients and moments take 112.0 GB, and a device has 32.0 GB; even so",
        ),
    ],
)
def test_fsdp_where_the_state_does_not_fit(params, memory, widths, fsdp, reason):
    size, said = mesh.fsdp_size(params, memory, 8, widths)
    assert size == fsdp
    assert said.startswith(reason)


def test_a_run_that_asks_for_no_mesh_gets_one_that_it_fits_on(monkeypatch):
    run = AnyRun()
    reports: list[str] = []
    assert mesh.mesh_for(run, SPECS, report=reports.append).shape["data"] == 8
    monkeypatch.setattr(
        mesh,
        "memory_bytes",
        lambda device: mesh.BYTES_PER_PARAMETER * tfm.count_params(SPECS) / mesh.MAX_STATE_FRACTION / 4,
    )
    assert dict(mesh.mesh_for(run, SPECS, report=reports.append).shape) == {
        "data": 2,
        "fsdp": 4,
        "context": 1,
        "tensor": 1,
    }
    assert len(reports) == 1
    assert reports[0].startswith("mesh.fsdp=4: parameters, gradients and moments take")
    asked = dataclasses.replace(run, mesh=Mesh(tensor=2))
    assert mesh.mesh_for(asked, SPECS, report=reports.append).shape["fsdp"] == 1, "a wish is a wish"


@pytest.mark.parametrize(
    ("rows", "devices", "reason"), [(32, 1, "jax had started before"), (30, 6, "more parts would be unequal")]
)
def test_cores_that_have_no_device(rows, devices, reason, monkeypatch):
    monkeypatch.setattr(mesh.cpu, "core_count", lambda: 16)
    monkeypatch.setattr(jax, "devices", lambda: [jax.local_devices(backend="cpu")[0]] * devices)
    reports = []
    mesh.mesh_for(AnyRun(batch=Batch(size=rows, length=16)), SPECS, report=reports.append)
    assert reports[0].startswith(f"{rows} rows are split over {devices} of 16 cores: {reason}")


@pytest.mark.parametrize(
    ("cores", "rows", "sizes", "count"),
    [
        (2, 32, (-1, 1, 1), 2),
        (1, 32, (-1, 1, 1), 1),
        (16, 32, (-1, 1, 1), 8),  # 4 rows each
        (2, 9, (-1, 1, 1), 1),  # 2 does not divide 9
        (2, 32, (1, 1, 1), 1),
        (4, 32, (1, 2, 1), 2),
        (2, 32, (2, 2, 2), 2),  # too many: the mesh will say so
    ],
)
def test_devices_on_a_cpu(cores, rows, sizes, count):
    assert mesh.cpu_device_count(cores, rows, *sizes) == count


@pytest.mark.parametrize(
    ("cores", "width", "heads", "rows", "length", "parts"),
    [
        (2, 768, 12, 1, 256, 2),
        (2, 512, 8, 12, 128, 2),
        (2, 512, 8, 13, 128, 1),  # more than 3 tokens for each of the width
        (2, 128, 4, 1, 64, 1),
        (8, 768, 12, 1, 256, 4),  # 8 does not divide 12 heads
        (6, 768, 12, 1, 256, 4),  # nor 6 the padded vocabulary
        (1, 768, 12, 1, 256, 1),
    ],
)
def test_layers_are_cut_where_there_are_few_tokens_for_their_width(cores, width, heads, rows, length, parts):
    run = AnyRun(model=tfm.Config(width=width, heads=heads), batch=Batch(size=rows, length=length))
    assert mesh.tensor_parallelism(cores, run) == parts
    assert mesh.tensor_parallelism(cores, dataclasses.replace(run, mesh=Mesh(data=1))) == 1, "a wish is a wish"


def test_a_run_with_few_tokens_for_its_width_shares_layers():
    run = AnyRun(model=tfm.Config(width=256, heads=8), batch=Batch(size=1, length=64))
    reports: list[str] = []
    assert dict(mesh.mesh_for(run, SPECS, report=reports.append).shape) == {
        "data": 1,
        "fsdp": 1,
        "context": 1,
        "tensor": 8,
    }
    assert reports == [
        "mesh.tensor=8: tensor parallelism over 8 CPU devices; the batch is small compared with the model width"
    ]


def test_table_of_shardings():
    assert mesh.sharding_table(SPECS, tfm.make_mesh(1, 2, 2, 2)) == {
        "vocabulary over tensor, width over fsdp": "embed.tokens",
        "width over fsdp": "embed.positions, embed.types, head.dense",
        "query heads per key/value head over tensor, width over fsdp": "mixer.query, mixer.output",
        "width over fsdp, 3 key/value heads replicated: mesh.tensor=2 does not divide them": "mixer.key, mixer.value",
        "feed-forward over tensor, width over fsdp": "feed_forward.up, feed_forward.down",
        "rows over fsdp, positions over context": "batches",
    }
    assert list(mesh.sharding_table(SPECS, tfm.make_mesh(devices=jax.devices()[:1]))) == ["replicated on every device"]
