"""Sources in batches."""

from types import SimpleNamespace

from train.tasks import resolve
from train.tasks.translate import translation


def test_limits_are_those_of_each_source(monkeypatch):
    """Twice its own padded length, in every batch."""
    monkeypatch.setattr(translation, "checked", lambda *inputs: None)
    sources = [[5] * length for length in (3, 40, 7, 40, 1, 17)]
    run, template = resolve.resolve(["--task=translate"], None, None)[0], SimpleNamespace(pad=0, decoder_prefix=[1])

    def limits(batch_size):
        def search(model, starts, rows, max_new_tokens):
            return [max_new_tokens] * len(starts)

        batches = translation.Batches(batch_size)
        return dict(translation.decode_sources(None, run.model, template, sources, batches, search))

    expected = {row: 2 * translation.padded_length([source]) for row, source in enumerate(sources)}
    assert limits(8) == limits(1) == expected
    assert len(set(expected.values())) > 2
