"""The report's pictures of held-out examples: which ones, and that they are what was photographed."""

import base64
import dataclasses
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from demur.offline.report.examples import MOST, example_groups, thumbnail
from demur.offline.report.page import ReportData, report_html
from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from tests.support.report_pages import THRESHOLD, Page, make_data

GREY = ImagePreprocessing(mean=(0.5,), std=(0.25,))
COLOUR = ImagePreprocessing("RGB", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def decoded(source: str) -> npt.NDArray[Any]:
    prefix, _, data = source.partition(",")
    assert prefix == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def images(task: str = "classification", n: int = 120) -> ReportData:
    """Held-out examples whose first pixel is their number."""
    data = make_data(task, n)
    spec = InputSpec(shape=(1, 4, 4), image=GREY)
    pixels = np.zeros((n, 1, 4, 4))
    pixels[:, 0, 0, 0] = np.arange(n)
    inputs = ((pixels / 255 - 0.5) / 0.25).astype(np.float32)
    return dataclasses.replace(data, manifest=dataclasses.replace(data.manifest, input=spec), inputs=inputs)


def number_of(source: str) -> int:
    return int(decoded(source)[0, 0])


@pytest.mark.parametrize("image", [GREY, COLOUR], ids=["L", "RGB"])
def test_a_thumbnail_is_the_picture_before_preprocessing(image: ImagePreprocessing) -> None:
    channels = len(image.mean)
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 9, 7))
    mean, std = (np.array(values).reshape(-1, 1, 1) for values in (image.mean, image.std))
    found = decoded(thumbnail(((pixels / 255 - mean) / std).astype(np.float32), image))
    np.testing.assert_array_equal(found, pixels[0] if channels == 1 else pixels.transpose(1, 2, 0))
    large = decoded(thumbnail(np.full((channels, 300, 200), 9.0, np.float32), image))
    assert (large.shape[:2], int(large.min())) == ((96, 64), 255)


def test_the_most_unusual_and_the_least_certain_come_first() -> None:
    data = images()
    assert data.mean is not None
    assert data.variance is not None
    assert data.targets is not None
    prediction = Predictive.of(data.manifest).undecided(GraphOutputs(data.mean, data.variance))
    assert prediction.total is not None
    rejected, accepted = example_groups(data.manifest, data.inputs, prediction, data.targets)
    above = prediction.score > THRESHOLD
    for group, values, among in ((rejected, prediction.score, above), (accepted, prediction.total, ~above)):
        expected = sorted(np.flatnonzero(among).tolist(), key=lambda i: -values[i])[:MOST]
        assert [number_of(example.source) for example in group.examples] == expected
    assert rejected.title.startswith("Rejected")
    assert prediction.probabilities is not None
    right = []
    for example in (*rejected.examples, *accepted.examples):
        place = number_of(example.source)
        said, truth = int(prediction.probabilities[place].argmax()), int(data.targets[place])
        right.append(said == truth)
        names = data.manifest.labels
        assert example.words.startswith(names[said] + ("; " if said == truth else f", in truth {names[truth]}; "))
    assert any(right)
    assert not all(right)


def test_the_page_shows_them_and_escapes_names() -> None:
    data = images()
    named = dataclasses.replace(data.manifest, class_names=("<b>", "b", "c"))
    page = Page(report_html(dataclasses.replace(data, manifest=named)))
    assert sum((image["src"] or "").startswith("data:image/png") for image in page.all("img")) == 2 * MOST
    assert any(tag == "bdi" and text.startswith("<b>") for tag, text in page.texts)  # as text, not as an element


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_without_images_there_are_none(task: str) -> None:
    page = Page(report_html(make_data(task)))
    assert not [image for image in page.all("img") if (image["src"] or "").startswith("data:image/png")]


def test_of_a_regression_the_values_are_named() -> None:
    page = Page(report_html(images("regression")))
    assert page.text("bdi").count("; score") == 2 * MOST


def test_inputs_that_do_not_fit_are_refused() -> None:
    data = images()
    assert data.inputs is not None
    with pytest.raises(ValueError, match=r"inputs: found shape \(119, 1, 4, 4\), expected \(120, 1, 4, 4\)"):
        dataclasses.replace(data, inputs=data.inputs[:-1])
