"""The work that train.bench times, in PyTorch: a process that runs steps when it is told to.

    python -m train.lab.timing.peers.torch_peer '{"model": "gpt", "layers": 4, ..., "compile": false}'
    python -m train.lab.timing.peers.torch_peer '{"folder": "FOLDER", "batch": 8, ..., "compile": false}'

It writes a line of JSON when it is ready, reads a count of steps a line, and answers with the seconds of each. The
first work is that of `random_task`: pre-norm blocks, tanh GELU, learned positions, one table for input and output,
fused attention or another mixer of `torch_mixers`, a cross entropy over all positions. The second is the model of a
folder, which a class of transformers reads, on the batches in that folder. Gradients are clipped at 1; AdamW. Only
these two files need torch.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import itertools
import json
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from train.lab.timing.peers.torch_mixers import mixer_of
from train.lab.timing.peers.work import FolderWork, PlainShape, PlainWork


class TorchAttention(nn.Module):
    """Attention of x [B,T,D] to a memory [B,S,D]."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, x, memory, causal: bool):
        """[B,T,D] -> [B,T,D]."""
        batch, length, width = x.shape
        shape = (batch, -1, self.heads, width // self.heads)
        key, value = self.key_value(memory).split(width, dim=-1)
        query, key, value = (part.reshape(shape).transpose(1, 2) for part in (self.query(x), key, value))
        heads = functional.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout, is_causal=causal)
        return self.output(heads.transpose(1, 2).reshape(batch, length, width))


class TorchBlock(nn.Module):
    """A pre-norm block; with `cross` it attends to a memory too."""

    def __init__(self, shape: PlainShape, cross: bool):
        super().__init__()
        width, heads, ffn = shape["width"], shape["heads"], shape["ffn"]
        self.attention = mixer_of(shape) or TorchAttention(width, heads, shape["dropout"])
        self.cross = TorchAttention(width, heads, shape["dropout"]) if cross else None
        self.dropout = nn.Dropout(shape["dropout"])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x, memory, causal: bool):
        """[B,T,D] -> [B,T,D]."""
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, causal))
        if self.cross is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory, False))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norms[-1](x)), approximate="tanh")))


class Stack(nn.Module):
    """Positions, blocks and the last norm."""

    def __init__(self, shape: PlainShape, causal: bool, cross: bool = False):
        super().__init__()
        self.causal = causal
        self.positions = nn.Parameter(0.02 * torch.randn(shape["length"], shape["width"]))
        self.blocks = nn.ModuleList(TorchBlock(shape, cross) for _ in range(shape["layers"]))
        self.norm, self.dropout = nn.LayerNorm(shape["width"]), nn.Dropout(shape["dropout"])

    def forward(self, x, memory=None):
        """Embeddings [B,T,D] -> states [B,T,D]."""
        x = self.dropout(x + self.positions)
        for block in self.blocks:
            x = block(x, memory, self.causal)
        return self.norm(x)


class Transformer(nn.Module):
    """An encoder (bert), a decoder (gpt), or both (seq2seq), with one table of tokens."""

    def __init__(self, shape: PlainShape):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(shape["vocab"], shape["width"]))
        family = shape["model"]
        self.reader = None if family == "gpt" else Stack(shape, causal=False)
        self.writer = None if family == "bert" else Stack(shape, causal=True, cross=family == "seq2seq")

    def forward(self, tokens, target):
        """Tokens [B,T] -> logits [B,T,V]."""
        states = None if self.reader is None else self.reader(self.table[tokens])
        if self.writer is not None:
            states = self.writer(self.table[tokens if self.reader is None else target], states)
        return states @ self.table.T


class Texts(nn.Module):
    """The loss of a plain model on new random tokens."""

    def __init__(self, shape: PlainShape):
        super().__init__()
        self.vocab, self.size = shape["vocab"], (shape["batch"], shape["length"])
        self.model = Transformer(shape)

    def batch(self, device: str):
        """Sources, targets and labels, each [B,T]."""
        return [torch.randint(self.vocab, self.size, device=device) for _ in range(3)]

    def forward(self, tokens, target, labels):
        """The mean cross entropy."""
        return functional.cross_entropy(self.model(tokens, target).float().flatten(0, 1), labels.flatten())


class LossOfFolder(nn.Module):
    """The loss of a folder's model on its batches, in turn."""

    def __init__(self, work: FolderWork):
        import transformers

        super().__init__()
        self.model = getattr(transformers, work["auto_class"]).from_pretrained(work["folder"], dtype=torch.float32)
        arrays = np.load(Path(work["folder"]) / "batches.npz")
        steps, names = zip(*(name.split(".") for name in arrays.files), strict=True)
        self.names = list(dict.fromkeys(names))
        batches = [
            [_tensor(arrays[f"{step}.{name}"], work["device"]) for name in self.names] for step in dict.fromkeys(steps)
        ]
        self.batches = itertools.cycle(_with_dynamic_axes(batches))
        with torch.no_grad():  # a class notes in its config what labels it meets: later it would be compiled again
            self.model.to(work["device"])(**dict(zip(self.names, batches[0], strict=True)))

    def batch(self, device: str):
        """The fields of the next batch."""
        return next(self.batches)

    def forward(self, *fields):
        """The mean cross entropy."""
        return self.model(**dict(zip(self.names, fields, strict=True))).loss


def _tensor(array: np.ndarray, device: str):
    """An array on the device; integers have 64 bits."""
    tensor = torch.from_numpy(array).to(device)
    return tensor if tensor.is_floating_point() else tensor.long()


def _with_dynamic_axes(batches):
    """The batches; axes whose sizes differ between them are marked, so that one program serves all."""
    for fields in zip(*batches, strict=True):
        for axis, sizes in enumerate(zip(*(field.shape for field in fields), strict=True)):
            for field in fields if len(set(sizes)) > 1 else ():
                torch._dynamo.maybe_mark_dynamic(field, axis)
    return batches


class TorchTrainer:
    """A model with its optimizer."""

    def __init__(self, work: PlainWork | FolderWork):
        torch.manual_seed(0)
        self.device, self.is_half = work["device"], work["dtype"] == "bfloat16"
        model = LossOfFolder(cast(FolderWork, work)) if "folder" in work else Texts(cast(PlainWork, work))
        self.model = model.to(self.device).train()
        self.parameters = list(self.model.parameters())
        self.run = torch.compile(self.model) if work["compile"] else self.model
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=1e-3, weight_decay=0.1, fused=True if self.device == "cuda" else None
        )

    def step(self) -> float:
        """A step on a new batch -> its loss; it ends when the device has done it."""
        batch = self.model.batch(self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.is_half):
            loss = self.run(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main():
    """Serves until its input ends."""
    trainer = TorchTrainer(json.loads(sys.argv[1]))
    if trainer.device == "cuda":
        torch.set_float32_matmul_precision("high")
    trainer.step()
    params = sum(parameter.numel() for parameter in trainer.parameters)
    print(json.dumps({"torch": torch.__version__, "params": params}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = trainer.step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
