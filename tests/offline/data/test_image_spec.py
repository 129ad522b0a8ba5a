"""Input specs from what timm and transformers write down, against transformers' own image processors."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image

from demur.offline.data.image_spec import image_spec
from demur.service.codec.images import image_to_array
from tests.support.client import encoded

PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "stretched": ("ViTImageProcessorPil", {}),
    "share": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 224}}),
    "whole": ("ConvNextImageProcessorPil", {}),
    "shorter side": ("CLIPImageProcessorPil", {}),
    "stretched and cut": ("DeiTImageProcessorPil", {}),
    "twice the deviation": ("EfficientNetImageProcessorPil", {"resample": 3}),
    "bilinear": ("MobileNetV2ImageProcessorPil", {}),
    "plain": ("ViTImageProcessorPil", {"do_normalize": False}),
    "numbers of levels": ("ViTImageProcessorPil", {"do_rescale": False, "image_mean": [100.0] * 3}),
}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("size", [(300, 400), (224, 224), (97, 61)], ids=str)
def test_a_service_makes_of_an_image_what_the_processor_makes(name: str, size: tuple[int, int]) -> None:
    kind, options = PROCESSORS[name]
    processor = getattr(transformers, kind)(**options)
    spec = image_spec(processor)
    assert spec == image_spec(processor.to_dict())
    assert spec.image is not None
    shades = np.add.outer(np.linspace(0, 120, size[0]), np.linspace(0, 100, size[1]))
    picture = Image.fromarray(np.stack([shades, shades[::-1], 220 - shades], axis=2).astype(np.uint8))
    expected = processor(picture, return_tensors="np")["pixel_values"][0]
    found = image_to_array(encoded(picture), spec, 10**6, "image")
    np.testing.assert_allclose(found, expected, atol=2 * spec.image.scale / min(spec.image.std))


@pytest.mark.parametrize(
    "kind", ["LevitImageProcessorPil", "PoolFormerImageProcessorPil", "MobileViTImageProcessorPil"]
)
def test_a_processor_with_steps_of_its_own_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="image_spec"):
        image_spec(getattr(transformers, kind)())


# As timm.data.resolve_data_config and pretrained_cfg have it.
TIMM = {
    "input_size": (3, 224, 224),
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "crop_pct": 0.9,
    "crop_mode": "center",
}


def test_the_settings_of_timm_are_read() -> None:
    spec = image_spec(SimpleNamespace(pretrained_cfg=TIMM))
    assert spec == image_spec(TIMM)
    assert spec.shape == (3, 224, 224)
    assert spec.image is not None
    assert (spec.image.mode, spec.image.resize_to, spec.image.interpolation) == ("RGB", (248,), "bicubic")
    assert spec.image.mean == TIMM["mean"]
    assert spec.image.scale == 1 / 255


@pytest.mark.parametrize(
    ("changes", "resize_to"),
    [
        ({"crop_pct": 1.0}, (224,)),
        ({"crop_mode": "squash"}, (248, 248)),
        ({"crop_mode": None, "crop_pct": None}, (256,)),
        ({"crop_mode": "squash", "input_size": (1, 64, 32), "mean": (0.5,), "std": (0.5,)}, (71, 35)),
    ],
)
def test_cuts_of_timm(changes: dict[str, Any], resize_to: tuple[int, ...]) -> None:
    image = image_spec(TIMM | changes).image
    assert image is not None
    assert image.resize_to == resize_to


@pytest.mark.parametrize(
    "changes",
    [{"crop_mode": "border"}, {"input_size": (3, 64, 32)}, {"interpolation": "area"}, {"std": (0.0, 1.0, 1.0)}],
)
def test_settings_of_timm_that_a_service_does_not_take_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="image_spec"):
        image_spec(TIMM | changes)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_normalize": True, "do_resize": False},
        {"do_normalize": True, "size": {"longest_edge": 224}},
        {"do_normalize": True, "size": {"shortest_edge": 224}},
        {"do_normalize": True, "size": 224, "resample": 5},
    ],
)
def test_settings_of_transformers_that_a_service_does_not_take_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="image_spec"):
        image_spec(settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "do_center_crop": True},
            "224",
        ),
        ({"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 224}}, "LevitImageProcessor"),
        ({"size": {"height": 32, "width": 32}, "do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"size": {"height": 32, "width": 32}, "do_pad": True}, "do_pad"),
        ({"size": {"height": 32, "width": 32}, "offset": True}, "offset"),
    ],
)
def test_settings_that_depend_on_their_class_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=rf"found .*{named}.*give the processor itself: image_spec\(AutoImage"):
        image_spec({"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, **settings})


def test_a_size_of_both_sides_is_known_of_some_classes() -> None:
    settings = {"feature_extractor_type": "ViTFeatureExtractor", "size": 224, "image_mean": [0.5] * 3}
    assert image_spec({**settings, "image_std": [0.5] * 3}).shape == (3, 224, 224)


def test_the_file_of_timm_holds_its_settings() -> None:
    assert image_spec({"architecture": "vit", "pretrained_cfg": TIMM}) == image_spec(TIMM)


@pytest.mark.parametrize("source", [None, {}, {"size": 3}, "google/vit"])
def test_anything_else_is_refused(source: object) -> None:
    with pytest.raises(TypeError, match="expected an image processor"):
        image_spec(source)
