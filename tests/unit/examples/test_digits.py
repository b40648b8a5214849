from __future__ import annotations

import sys
from types import ModuleType

import mlx.core as mx
import pytest


def test_the_digits_are_all_there_and_split_without_overlap(digits: ModuleType) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    samples = digits.load_samples()
    image, label = samples[0]
    assert (len(samples), image.shape, image.dtype.name) == (1797, (8, 8, 1), "float32")
    assert min(i.min() for i, _ in samples) == 0
    assert max(i.max() for i, _ in samples) == 1
    assert label in range(digits.CLASSES)
    training, held_out = digits.split_samples(samples)
    assert {id(s) for s in training} | {id(s) for s in held_out} == {id(s) for s in samples}
    assert len(training) + len(held_out) == len(samples)


def test_without_scikit_learn_one_line_says_so(
    digits: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit) as stopped:
        digits.load_samples()
    text = str(stopped.value)  # a text as status: printed on stderr, exit code 1
    assert "scikit-learn" in text and "\n" not in text


def test_the_model_maps_images_to_logits(digits: ModuleType) -> None:
    model = digits.DigitNet()
    assert model(mx.zeros((3, 8, 8, 1))).shape == (3, digits.CLASSES)


def test_accuracy_is_the_share_that_is_right(digits: ModuleType) -> None:
    model = digits.DigitNet()
    model.eval()
    images = mx.random.normal((4, 8, 8, 1), key=mx.random.key(0))
    labels = [int(label) for label in mx.argmax(model(images), axis=-1)]
    wrong = [(label + (index == 0)) % digits.CLASSES for index, label in enumerate(labels)]
    assert digits.accuracy(model, list(zip(images, labels, strict=True))) == 1
    assert digits.accuracy(model, list(zip(images, wrong, strict=True))) == 0.75
