"""Held-out images in the report: what is rejected, and what is accepted with the least certainty."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from demur.service.bundle import ImagePreprocessing, Manifest
from demur.service.inference.prediction import Prediction

from ..runtime.arrays import Array
from .words import number, percent

MOST = 6  # of each group
SIDE = 96  # pixels of a thumbnail at most


@dataclass(frozen=True)
class Example:
    """A thumbnail as a data URI, and a few words for it."""

    source: str
    words: str


@dataclass(frozen=True)
class Examples:
    """One group."""

    title: str
    examples: list[Example]


def example_groups(manifest: Manifest, inputs: Array | None, prediction: Prediction, targets: Array) -> list[Examples]:
    """None where the inputs (n, C, H, W) are no images, or of several labels an example."""
    image = manifest.input.image
    if image is None or inputs is None or manifest.task == "multilabel":
        return []
    above = prediction.score > manifest.calibration.threshold
    least_certain = prediction.total if prediction.total is not None else prediction.variance.mean(axis=1)
    groups = {
        "Rejected, the most unusual ones first": _first(prediction.score, above),
        "Accepted, the least certain ones first": _first(least_certain, ~above),
    }
    return [
        Examples(
            title, [Example(thumbnail(inputs[i], image), _words(manifest, prediction, targets, i)) for i in places]
        )
        for title, places in groups.items()
        if len(places)
    ]


def thumbnail(x: Array, image: ImagePreprocessing) -> str:
    """The picture before preprocessing, x (C, H, W): pixel = (x std + mean) / scale, cut to 0 to 255."""
    mean, std = (np.array(values, np.float64).reshape(-1, 1, 1) for values in (image.mean, image.std))
    pixels = np.clip(np.rint((x * std + mean) / image.scale), 0, 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    picture.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _first(values: Array, among: Array) -> Sequence[int]:
    """Places of the largest values."""
    places = np.flatnonzero(among)
    ordered: list[int] = places[np.argsort(-np.asarray(values)[places], kind="stable")][:MOST].tolist()
    return ordered


def _words(manifest: Manifest, prediction: Prediction, targets: Array, i: int) -> str:
    score = f"score {number(float(prediction.score[i]))}"
    if prediction.probabilities is None:
        return f"{', '.join(number(float(value)) for value in prediction.mean[i])}; {score}"
    p = prediction.probabilities[i]
    found, truth = manifest.labels[int(p.argmax())], manifest.labels[int(targets[i])]
    said = found if found == truth else f"{found}, in truth {truth}"
    return f"{said}; {percent(float(p.max()))}; {score}"
