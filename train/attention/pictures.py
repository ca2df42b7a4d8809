"""Files with the attention of a text: a page of HTML that can be turned to a layer, a head and a word, or a picture."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train import UserError
from train.attention.maps import AttentionMap
from train.attention.page import HTML
from train.files.lines import whole_file
from train.screens import plots

ENDINGS = (".html", ".png")

# The most tokens whose texts stand beside a picture.
_LABELLED = 40


def check(to: str, text: str) -> None:
    """Raises UserError for a file that is neither a page nor a picture, and where no text is named."""
    if not to.endswith(ENDINGS):
        raise UserError(f"--attention={to} must end in .html or .png")
    if not text:
        raise UserError(f"--attention={to} draws one text; name it with --text instead of --file")
    if not Path(to).absolute().parent.is_dir():
        raise UserError(f"--attention={to} cannot be written: its folder is not there; make it, or choose another file")


def save(to: str, title: str, maps: Sequence[AttentionMap]) -> None:
    """Writes all maps as a page, or the first one as a picture. Raises UserError if the file cannot be written."""
    with whole_file(to, "attention") as path:
        if to.endswith(".html"):
            path.write_text(page(title, maps), encoding="utf-8")
        else:
            draw(maps[0], path)


def page(title: str, maps: Sequence[AttentionMap]) -> str:
    """A page that needs no other file. A weight is a byte, in 255 parts of 1."""
    data = {"title": title, "maps": [_encoded(shown) for shown in maps]}
    return HTML.replace("__DATA__", json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))


def _encoded(shown: AttentionMap) -> dict[str, object]:
    """A map as JSON has it."""
    layers = [
        {
            "layer": layer,
            "heads": len(weights),
            "weights": base64.b64encode(np.rint(255 * weights).astype(np.uint8).tobytes()).decode(),
        }
        for layer, weights in shown.layers.items()
    ]
    return {"title": shown.title, "queries": shown.queries, "keys": shown.keys, "layers": layers}


def draw(shown: AttentionMap, path: Path) -> None:
    """A grid of pictures: a row for each layer, a column for each head; queries are rows, keys are columns."""
    columns = max(map(len, shown.layers.values()))
    labelled = max(len(shown.queries), len(shown.keys)) <= _LABELLED
    side = np.clip(0.2 * max(len(shown.queries), len(shown.keys)), 1.6, 5.0)
    size = (columns * side + 1.2, len(shown.layers) * side + 1.2)
    with plots.panels(path, size, columns, len(shown.layers), "png") as axes:
        for row, (layer, weights) in enumerate(shown.layers.items()):
            for head in range(columns):
                panel = axes[row * columns + head]
                if head >= len(weights):
                    panel.set_axis_off()
                    continue
                panel.imshow(weights[head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
                panel.set_title(f"layer {layer}, head {head + 1}", fontsize=8)
                panel.set(xticks=[], yticks=[])
                if labelled and row == len(shown.layers) - 1:
                    panel.set_xticks(range(len(shown.keys)), map(_plain, shown.keys), rotation=90, fontsize=6)
                if labelled and not head:
                    panel.set_yticks(range(len(shown.queries)), map(_plain, shown.queries), fontsize=6)


def _plain(token: str) -> str:
    """A token without what matplotlib reads as mathematics."""
    return token.replace("$", r"\$")
