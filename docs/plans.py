"""What the presets of papers need on a pod: `python docs/plans.py` prints the table of docs/guide/plan.md.

`python docs/plans.py PRESET` prints the row of one preset. The step is traced, and not compiled.
"""

import argparse
import contextlib
import io
import json
from typing import NamedTuple

import train.plan
from train.tasks import resolve

DAY = 86_400

# By preset: the pod, and the flags that the preset needs there beside its own.
PODS = {
    "transformer-base": ("v5e:2x4", ""),
    "transformer-big": ("v5e:2x4", ""),
    "bert-base": ("v5e:4x4", ""),
    "bert-large": ("v5e:4x4", "--model.remat=dots"),
    "imagegpt-xl": ("v5p:4x4x4", "--task=pixels --mesh.fsdp=64 --model.remat=block"),
    "chinchilla-70b": ("v5p:8x8x8", "--mesh.fsdp=128 --mesh.tensor=4 --model.remat=block"),
    "lamda-137b": ("v5p:8x8x8", "--mesh.fsdp=64 --mesh.tensor=8 --batch.size=128 --model.remat=block"),
    "gpt3-175b": ("v5p:8x8x16", "--mesh.fsdp=128 --mesh.tensor=8 --model.remat=block"),
    "gopher-280b": ("v5p:8x8x16", "--mesh.fsdp=128 --mesh.tensor=8 --model.remat=block"),
    "mt-nlg-530b": ("v5p:8x8x16", "--mesh.fsdp=128 --mesh.tensor=8 --model.remat=block"),
    "palm-540b": ("v5p:8x8x16", "--mesh.fsdp=128 --mesh.tensor=8 --model.remat=block"),
}


class Plan(NamedTuple):
    """What a run needs.

    fits: whether the memory of a device suffices
    memory: bytes of a device, of the phase that needs most
    operations: of a step of that phase
    mfu: at best
    days: of all steps of the preset, at best
    """

    fits: bool
    memory: float
    operations: float
    mfu: float
    days: float


def words_of(preset: str) -> list[str]:
    """The flags of the run."""
    return [f"--preset={preset}", *PODS[preset][1].split()]


def plan(preset: str) -> Plan:
    """What the preset needs on its pod. Raises UserError where `train.plan` refuses."""
    own = [f"--topology={PODS[preset][0]}", "--compile=false", "--search=false"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train.plan.plan([*own, *words_of(preset)])
    report = json.loads(printed.getvalue())
    run, _ = resolve.resolve(resolve.infer_task(words_of(preset), None), None, None)
    phases = report.get("phases") or [{"first": 0, "stop": run.steps, **report}]
    seconds = sum((phase["stop"] - phase["first"]) * phase["seconds_a_step"] for phase in phases)
    return Plan(report["fits"], report["memory"]["all"], report["flops"], report["mfu"], seconds / DAY)


def row(preset: str) -> str:
    """A row of the table."""
    needs, (pod, words) = plan(preset), PODS[preset]
    memory = f"{needs.memory / 1e9:.1f} GB" + ("" if needs.fits else ": does not fit")
    flags = f"`{words}`" if words else ""
    return (
        f"| `{preset}` | `{pod}` | {flags} | {memory} | {needs.operations:.2e} | {needs.mfu:.2f} | {needs.days:.3g} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prints what presets of papers need on a pod.")
    parser.add_argument("preset", choices=PODS, nargs="?")
    options = parser.parse_args()
    for preset in [options.preset] if options.preset else PODS:
        print(row(preset), flush=True)
