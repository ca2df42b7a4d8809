"""How many of the ten best passages an index of vectors of tokens keeps: `python late_recall.py runs/late`.

The run is one of --task=late; the passages and questions are the built-in ones.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from train.data.synthetic import deals
from train.lab.embedding import late_index
from train.lab.embedding.late import LateEncoder, nearest_late
from train.lab.embedding.options import TextEncoderOptions
from train.screens.console import Log


def recall(rows_of_queries, expected):
    """The share of expected rows."""
    return np.mean([len({*rows} & {*best}) / len(best) for rows, best in zip(rows_of_queries, expected, strict=True)])


def main():
    texts, options, log = deals.read().collection, TextEncoderOptions(run=sys.argv[1]), Log(quiet=True)
    passages, encoder = [*texts.corpus.values()], LateEncoder(options, log)
    queries = encoder.queries([*texts.queries.values()])
    _, expected = nearest_late(queries, encoder.passages(passages), 10)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "index")
        late_index.write(path, passages, options, log)
        index = late_index.LateIndex(path)
        print(f"{len(passages)} passages, {len(index.vectors)} tokens, {len(index.centroids)} centroids")
        _, rows = nearest_late(queries, index.passages(range(len(index))), 10)
        print(f"int8, all passages: {recall(rows, expected):.3f} of the ten best")
        for count in (64, 128):
            for probes in (1, 2, 4, 8):
                rows = [index.candidates(query, count, probes) for query in queries]
                print(f"{count} candidates by {probes} centroids a token: {recall(rows, expected):.3f} of the ten best")


if __name__ == "__main__":
    main()
