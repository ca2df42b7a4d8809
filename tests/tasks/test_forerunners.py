"""Skip-Thought and bidirectional language models as tasks: rows, losses, and commands that read their runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small import call, run, write_text

import tfm
from train import UserError
from train.data.tokens import TokenizedTexts
from train.lab import embed
from train.lab.embedding.expansion import Expansion
from train.tasks import presets
from train.tasks.bilm.rows import BothDirections, Samples
from train.tasks.bilm.task import BILM
from train.tasks.skipthought.rows import SentenceTriples, check_triples
from train.tasks.skipthought.task import SKIPTHOUGHT
from train.text.special import SpecialTokens

SPECIALS = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4)
SMALL = "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --steps=4 --log.every=2 --eval.every=4".split()
NARROW = "--model.width=16 --model.input.width=8 --checkpoint.every=4 --data=text.txt --data.split=line".split()


def test_targets_of_both_directions():
    """The row at the top of train/tasks/bilm/task.py."""
    text = TokenizedTexts(np.array([10, 11, 12, 13]), np.array([0, 2, 4]))
    rows = BothDirections(text, 9, True, SPECIALS)
    batch = rows.batch(np.array([0, -1]), np.random.default_rng(0))
    tokens, segments = batch["tokens"][0], batch["segments"][0]
    for prefix, step in (("", 1), ("previous_", -1)):
        for place in range(9):
            neighbour = place + step
            inside = 0 <= neighbour < 9 and segments[place] > 0 and segments[place] == segments[neighbour]
            assert batch[f"{prefix}weights"][0, place] == inside
            assert not inside or batch[f"{prefix}targets"][0, place] == tokens[neighbour]
        assert not batch[f"{prefix}weights"][1].any()
    assert "samples" not in batch


def test_samples_are_log_uniform():
    samples = Samples(per_row=5000, vocab=50).draw(40, np.random.default_rng(0))
    assert samples.shape == (40, 5000)
    assert samples.dtype == np.int32
    shares = np.bincount(samples.ravel(), minlength=50) / samples.size
    np.testing.assert_allclose(shares, np.exp(tfm.log_uniform(jnp.arange(50), 50)), atol=0.005)


def test_triples():
    """Sentences of two documents; the middle ones of each, with what is before and after them."""
    starts = np.array([0, 2, 3, 6, 8, 9, 9, 10])
    text = TokenizedTexts(np.arange(10, 20), starts)
    rows = SentenceTriples(text, np.array([0, 0, 0, 0, 1, 1, 1]), 4, SPECIALS)
    assert rows.middles.tolist() == [1, 2]  # the second document has an empty sentence
    batch = rows.batch(np.array([1, -1]), np.random.default_rng(0))
    np.testing.assert_array_equal(batch["tokens"], [[13, 14, 15, 3], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["valid"], [[1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["previous_tokens"][0, :2], [3, 12])
    np.testing.assert_array_equal(batch["previous_targets"][0], [12, 3, 0, 0])
    np.testing.assert_array_equal(batch["following_targets"], [[16, 17, 3, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["following_weights"], [[1, 1, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["following_tokens"][0, :3], [3, 16, 17])


def test_documents_without_triples_are_refused():
    rows = SentenceTriples(TokenizedTexts(np.arange(5), np.array([0, 2, 5])), np.array([0, 0]), 8, SPECIALS)
    with pytest.raises(UserError, match=r"three sentences or more, and each document here has fewer.*data\.split"):
        check_triples(rows, ["a. b."])


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_loss_of_both_directions(sampled):
    """The mean of the losses of both halves, each against its own neighbour."""
    values = {"width": 8, "input.width": 4, "mixer.size": 6, "mixer.projection": 4, "vocab": 30, "scan": True}
    model = presets.model("elmo-tiny", **values)
    params = random_params(tfm.bidirectional_lm_specs(model))
    text = TokenizedTexts(np.arange(5, 25), np.array([0, 9, 20]))
    rows = BothDirections(text, 16, True, SPECIALS, Samples(4000, 30) if sampled else None)
    batch = rows.batch(np.array([0, 1]), np.random.default_rng(0))
    sums = BILM.loss(params, model, batch, None)
    hidden = tfm.encoder(
        params.encoder, model, batch["tokens"], tfm.segments(jnp.asarray(batch["segments"])), batch["positions"]
    )
    expected = 0.0
    for states, prefix in zip(tfm.directions(hidden), ("", "previous_"), strict=True):
        logprobs = jax.nn.log_softmax(tfm.unembed(model, params.output, states) + params.bias[None, None], axis=-1)
        chosen = np.take_along_axis(np.asarray(logprobs), batch[f"{prefix}targets"][..., None], axis=2)[..., 0]
        expected -= (chosen * batch[f"{prefix}weights"]).sum()
    np.testing.assert_allclose(sums["loss"], expected, rtol=0.02 if sampled else 1e-5)
    assert ("right" in sums) is not sampled


@pytest.mark.slow
def test_a_shuffled_vector_is_that_of_a_random_sentence():
    """With the sentence itself in its place, both losses are the same."""
    model = presets.model("uni-skip-tiny", width=8, vocab=30, **{"input.width": 4})
    params = random_params(tfm.skip_thought_specs(model))
    text = TokenizedTexts(np.arange(5, 25), np.array([0, 3, 7, 12, 16, 20]))
    batch = SentenceTriples(text, np.zeros(5, int), 8, SPECIALS, shuffled=True).batch(
        np.array([0, 2]), np.random.default_rng(0)
    )
    sums = SKIPTHOUGHT.loss(params, model, batch, None)
    assert sums["weight"] == 3 + 1 + 5 + 1 + 5 + 1 + 4 + 1
    same = batch | {"shuffled_tokens": batch["tokens"], "shuffled_valid": batch["valid"]}
    np.testing.assert_allclose(SKIPTHOUGHT.loss(params, model, same, None)["loss_shuffled"], sums["loss"], rtol=1e-6)
    assert SKIPTHOUGHT.metrics({**sums, "loss_shuffled": sums["loss"] + sums["weight"]})[
        "vector_nats"
    ] == pytest.approx(1)


def documents(path):
    """Lines of five sentences of random words."""
    write_text(path)
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join(" ".join(f"{line[0].upper()}{line[1:]}" for line in lines[n : n + 5]) for n in range(0, 300, 5))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "extra"), [("skipthought", ()), ("bilm", ("--model.mixer.size=12", "--model.mixer.projection=8"))]
)
def test_runs_are_read_by_the_commands(task, extra, tmp_path, monkeypatch):
    """Training, evaluation and vectors; and features of a frozen run for a classifier."""
    monkeypatch.chdir(tmp_path)
    documents(tmp_path / "text.txt")
    run(f"--task={task}", *SMALL, *NARROW, *extra, "--out=first")
    result = json.loads((tmp_path / "first/result.json").read_text())
    assert result["eval_loss"] < 7
    if task == "skipthought":
        assert result["eval_vector_nats"] == pytest.approx(result["eval_loss_shuffled"] - result["eval_loss"])
    (tmp_path / "texts.txt").write_text("the cat sat.\na dog ran.\n")
    code, _, err = call(embed.main, "--run=first", "--file=texts.txt", "--to=out.npy")
    assert code == 0, err
    assert np.load(tmp_path / "out.npy").shape == (2, 16)
    words = "a cat dog bird sat ran flew on under over mat house tree and".split()
    rows = [f"{word} {second} it was.\t{label}" for word in words for second, label in (("red", "a"), ("blue", "b"))]
    rows *= 3
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    few = "--steps=4 --batch.size=8 --log.every=2 --eval.every=4 --checkpoint.every=4 --batch.length=16".split()
    run("--task=classify", "--init=first", "--features=mix", "--tune=head", "--data=rows.tsv", *few, "--out=second")
    saved = json.loads((tmp_path / "second/run.json").read_text())
    assert saved["config"]["model"]["head"]["features"] == "mix"
    assert saved["config"]["model"]["mixer"]["name"] == {"skipthought": "gru", "bilm": "lstm"}[task]


class Words:
    """A tokenizer of whole words, as much as the expansion asks of one."""

    normalizer = None
    encode_special_tokens = False

    def __init__(self, words):
        self.ids = {word: index for index, word in enumerate(words)}
        self.pre_tokenizer = self

    def get_vocab(self):
        return self.ids

    def get_added_tokens_decoder(self):
        return {}

    def token_to_id(self, word):
        return self.ids.get(word)

    def pre_tokenize_str(self, text):
        return [(word, None) for word in text.split()]

    def encode_batch(self, texts, add_special_tokens):
        return [type("Encoding", (), {"ids": [0]})() for _ in texts]


def test_new_words_are_mapped_from_their_vectors(tmp_path):
    """Where one space is a linear image of the other, the map is that image."""
    rng = np.random.default_rng(0)
    words = [f"{letter}{end}" for letter in "abcdefgh" for end in ("x", "y")]
    vectors, image = rng.normal(size=(len(words), 3)), rng.normal(size=(3, 5))
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(words, vectors, strict=True)]
    path = tmp_path / "words.vec"
    path.write_text("\n".join([f"{len(words)} 3", *lines]) + "\n")
    table = np.concatenate([rng.normal(size=(1, 5)), vectors[:10] @ image])
    expansion = Expansion(str(path), table, Words(["[UNK]", *words[:10]]))
    tokens, rows = expansion.encode([f"{words[2]} {words[12]} nothing", f"{words[11]} {words[12]}"])
    np.testing.assert_array_equal(tokens.ids, [3, 11, 0, 12, 11])
    np.testing.assert_array_equal(tokens.starts, [0, 3, 5])
    np.testing.assert_allclose(rows, vectors[[12, 11]] @ image, rtol=1e-4)
    with pytest.raises(UserError, match=r"shares 2 words with the tokenizer, too few to map 3 numbers"):
        Expansion(str(path), table, Words(["[UNK]", *words[:2]]))
