"""Files of word vectors, means of words, and smooth inverse frequency."""

import numpy as np
import pytest

from train import UserError
from train.lab.embedding.picture import principal_components
from train.lab.embedding.search import compare, nearest
from train.lab.embedding.word_vectors import BagOfWords, without_first_component
from train.text.word_vectors import WordVectors

TABLE = {"the": [1.0, 0.0, 0.5], "cat": [0.0, 2.0, -1.0], ".": [0.25, 0.25, 0.25], "sat": [-1.0, 1.0, 3.0]}


@pytest.fixture(params=["vec", "txt", "bin", "bin with line ends"])
def path(request, tmp_path):
    """The table in every format."""
    kind = request.param.split()[0]
    path = tmp_path / f"words.{kind}"
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in TABLE.items()]
    if kind == "bin":
        end = b"\n" if "line" in request.param else b""
        rows = [word.encode() + b" " + np.array(vector, "<f4").tobytes() + end for word, vector in TABLE.items()]
        path.write_bytes(b"4 3\n" + b"".join(rows))
    else:
        path.write_text("\n".join((["4 3"] if kind == "vec" else []) + lines) + "\n")
    return path


def test_formats(path):
    vectors = WordVectors(str(path))
    assert vectors.size == 3
    for word, values in TABLE.items():
        assert vectors[word].tolist() == values
    assert vectors["dog"] is None


def test_mean_of_words(path):
    """Unknown words are looked up in lower case, then in parts; a text without known words is 0."""
    vectors = BagOfWords(str(path))(["The cat", "cat.", "a dog", "sat sat the"])
    the, cat, dot, sat = (np.array(TABLE[word]) for word in ("the", "cat", ".", "sat"))
    expected = [(the + cat) / 2, (cat + dot) / 2, np.zeros(3), (2 * sat + the) / 3]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_smooth_inverse_frequency(path):
    """Weights a / (a + p), and all vectors less their projection on the first singular vector (numpy's svd)."""
    texts = ["the cat", "the sat .", "the the cat sat"]
    words = [text.split() for text in texts]
    joined = [word for row in words for word in row]
    weight = {word: 1e-3 / (1e-3 + joined.count(word) / len(joined)) for word in joined}
    plain = np.array([np.mean([weight[word] * np.array(TABLE[word]) for word in row], axis=0) for row in words])
    first = np.linalg.svd(plain)[2][0]
    expected = plain - np.outer(plain @ first, first)
    np.testing.assert_allclose(BagOfWords(str(path), weighted=True)(texts), expected, atol=1e-7)
    np.testing.assert_allclose(without_first_component(plain) @ first, 0, atol=1e-7)


BAD = {
    "words.csv": (b"a 1", "words.csv must be a .vec or .txt with a word and its numbers a line, or word2vec's .bin"),
    "empty.vec": (b"", "empty.vec is empty; fetch it again"),
    "short.vec": (b"2 3\na 1 2 3\nb 1 2\n", "'b' has 2 numbers, and other words 3; repair it"),
    "words.vec": (b"2 3\na 1 2 x\n", "the vector of 'a' is not made of numbers"),
    "nan.vec": (b"2 3\na 1 2 nan\n", "the vector of 'a' is not finite; repair it"),
    "cut.bin": (b"2 3\na " + bytes(8), "cut.bin ends at word 1 of 2; fetch it again"),
    "text.bin": (b"a 1 2 3\n", "does not begin with the counts of words and numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message.replace("(", ".").replace(")", ".")):
        BagOfWords(str(tmp_path / name))(["a b"])


def test_nearest_by_blocks():
    """Blocks give what a sort of all cosines gives; equal vectors keep their order."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(103, 7)).astype(np.float32)
    vectors[50] = vectors[3] * 2
    vectors[60] = 0
    queries = np.concatenate([rng.normal(size=(4, 7)), vectors[3:4]]).astype(np.float32)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-30)
    cosines = (queries @ vectors.T) / lengths / np.linalg.norm(queries, axis=1)[:, None]
    for block in (10, 40, 1000):
        scores, rows = nearest(queries, vectors, 12, block)
        expected = np.sort(-cosines, axis=1)[:, :12]
        np.testing.assert_allclose(scores, -expected, atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(cosines, rows, 1), scores, atol=1e-5)
        assert set(rows[4, :2]) == {3, 50}
    with pytest.raises(ValueError, match="count=104 must be at least 1, and at most 103"):
        nearest(queries, vectors, 104)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(similarity):
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(rows, 5)).astype(np.float32) for rows in (3, 20))
    differences = queries[:, None] - vectors
    expected = {
        "dot": queries @ vectors.T,
        "cosine": (queries @ vectors.T) / np.outer(*(np.linalg.norm(side, axis=1) for side in (queries, vectors))),
        "euclidean": -np.sqrt((differences**2).sum(2)),
        "manhattan": -abs(differences).sum(2),
    }[similarity]
    np.testing.assert_allclose(compare(queries, vectors, similarity), expected, atol=1e-5)
    scores, rows = nearest(queries, vectors, 4, block=7, similarity=similarity)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :4], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-5)


def test_principal_components():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 4)) * [1, 5, 0.1, 2] + 3
    places, shares = principal_components(vectors)
    left, values, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(places), np.abs(left[:, :2] * values[:2]), atol=1e-9)
    np.testing.assert_allclose(shares, (values**2 / (values**2).sum())[:2])
