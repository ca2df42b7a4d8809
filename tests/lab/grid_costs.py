"""What a training step of each variant for grids of patches takes, in processor time.

    taskset -c 0 python tests/lab/grid_costs.py [ROW ...]

Classifiers of the built-in drawings, four layers of width 96 on 16 x 16 patches; rows are flags of train.main. Prints a
line of Markdown for each: parameters, operations of a picture, processor time of a picture, and the memory that a step
needs beside parameters and optimizer, as the compiler plans it.
"""

import sys
import time

import jax

import tfm
from train.lab.timing.timing import mean_flops, on_devices
from train.screens.console import Log
from train.training import startup

PICTURES, WARMUP, STEPS = 16, 1, 6

SHARED = (
    "--task=image --preset=vit-micro --model.input.patch=2 --model.input.cls=false --model.head.pool=mean "
    f"--batch.size={PICTURES} --cpu.keep-awake=false"
)
WINDOWS = "--model.mixer.pattern=windows --model.mixer.pattern.window=4 --model.period=2"
ROWS = {
    "ViT: all patches": "",
    "windows of 4 x 4, shifted in turn (Swin)": f"{WINDOWS} --model.period.1.mixer=softmax --model.position=swin "
    "--model.period.1.mixer.pattern=windows --model.period.1.mixer.pattern.window=4 "
    "--model.period.1.mixer.pattern.shift=2",
    "neighbourhood of 5 x 5 (NAT)": "--model.mixer.pattern=neighbourhood --model.mixer.pattern.window=5",
    "a key for 4 x 4 patches (PVT)": "--model.mixer=spatial_reduction --model.mixer.factor=4",
    "windows and a key for 4 x 4, in turn (Twins)": f"{WINDOWS} --model.period.1.mixer=spatial_reduction "
    "--model.period.1.mixer.factor=4",
    "stripes of 2 (CSWin)": "--model.mixer=stripes --model.mixer.stripe=2 --model.position=none",
    "channels (XCiT)": "--model.mixer=xca --model.residual=patch_interaction",
    "windows and channels, in turn (DaViT)": f"{WINDOWS} --model.period.1.mixer=channel_groups "
    "--model.position=none --model.residual=conditional",
}


def measure(flags):
    """Parameters, operations and milliseconds of processor time of a picture, MB of a step."""
    run, corpus = startup.prepare([*SHARED.split(), *flags.split()], Log(quiet=True))
    job = startup.job_on_mesh(run, Log(quiet=True))
    with jax.set_mesh(job.mesh):
        batch, state = on_devices(job, corpus.batch(0)), job.new_state()
        step = job.train_step.lower(state, batch).compile()
        for _ in range(WARMUP):
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        start = time.process_time()
        for _ in range(STEPS):
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        milliseconds = 1e3 * (time.process_time() - start) / STEPS / PICTURES
    flops = mean_flops(job, corpus.batch, 1) / PICTURES
    return tfm.count_params(job.specs), flops, milliseconds, step.memory_analysis().temp_size_in_bytes / 1e6


if __name__ == "__main__":
    for name, flags in ROWS.items():
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
            params, flops, milliseconds, megabytes = measure(flags)
            print(
                f"| {name} | {params:,} | {flops / 1e6:.0f} M | {milliseconds:.1f} ms | {megabytes:.0f} MB |",
                flush=True,
            )
