"""How images become inputs, as the libraries that networks come from write it down."""

import io
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from PIL import Image

from demur.service.bundle import ImagePreprocessing, InputSpec, ManifestError
from demur.service.codec.images import image_to_array
from demur.service.format.manifest_input import Interpolation

INTERPOLATIONS: dict[str, Interpolation] = {name: name for name in get_args(Interpolation)}
EXPECTED = (
    "an image processor of transformers, a network of timm, or what timm.data.resolve_data_config(...) or "
    "preprocessor_config.json holds"
)
KNOWN = frozenset({"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb"})
# Classes whose `size` is both sides, and classes that do more than their settings say.
STRETCHING = ("ViT", "DeiT", "Beit", "EfficientNet", "Swin")
OWN_STEPS = ("Levit", "PoolFormer", "MobileViT")
LEVELS = 3  # of 256, by which two ways to resize may differ
WHOLE = 384  # from this size on, ConvNeXt's processor stretches the whole image


def image_spec(source: Any) -> InputSpec:
    """The input spec of a network of timm (its `pretrained_cfg`), of an image processor of transformers, or of the dict
    that either writes: size, cut, interpolation, mean and standard deviation.

    What a processor makes of two images is compared with what a service will. Raises `TypeError` for anything else, and
    `ValueError` for steps that a service does not take.
    """
    found = _settings(source)
    try:
        if "input_size" in found:
            return _of_timm(found)
        if "image_mean" in found or "do_normalize" in found:
            if not callable(source):
                _refuse_unclear(found)
            spec = _of_transformers(found)
            if callable(source):
                _check_alike(source, spec)
            return spec
    except ManifestError as error:
        raise ValueError(f"image_spec: {error}") from None
    raise TypeError(f"image_spec: found {type(source).__name__}, expected {EXPECTED}")


def _settings(source: Any) -> dict[str, Any]:
    if isinstance(source, Mapping):
        settings = source.get("pretrained_cfg")  # of the config.json of timm
        return dict(settings if isinstance(settings, Mapping) else source)
    for name in ("pretrained_cfg", "default_cfg"):
        if isinstance(settings := getattr(source, name, None), Mapping):
            return dict(settings)
    to_dict = getattr(source, "to_dict", None)
    return dict(to_dict()) if callable(to_dict) and hasattr(source, "image_mean") else {}


def _refuse_unclear(found: Mapping[str, Any]) -> None:
    """`ValueError` for settings of transformers that mean one thing or another, by the class that reads them."""
    kind = str(found.get("image_processor_type") or found.get("feature_extractor_type") or "")
    unknown = [name for name, value in found.items() if name.startswith("do_") and value and name not in KNOWN]
    problem = ""
    if isinstance(found.get("size"), int) and not kind.startswith(STRETCHING):
        problem = f"the size {found['size']}, which is one side or both"
    elif kind.startswith(OWN_STEPS) or unknown or found.get("offset"):
        problem = ", ".join(unknown) or ("offset" if found.get("offset") else kind)
    if problem:
        raise ValueError(
            f"image_spec: found {problem}, expected settings that say all; give the processor itself: "
            "image_spec(AutoImageProcessor.from_pretrained(...))"
        )


def _of_timm(found: Mapping[str, Any]) -> InputSpec:
    channels, height, width = found["input_size"]
    share, mode = found.get("crop_pct") or 0.875, found.get("crop_mode") or "center"
    if mode not in ("center", "squash"):
        raise ValueError(f"image_spec: found the crop_mode {mode!r}, expected 'center' or 'squash'")
    if mode == "center" and height != width:
        raise ValueError(f"image_spec: found {height} x {width} pixels, expected a square, or the crop_mode 'squash'")
    between = (int(height / share), int(width / share)) if mode == "squash" else (int(height / share),)
    preprocessing = ImagePreprocessing(
        "L" if channels == 1 else "RGB",
        mean=_numbers(found.get("mean"), 0.0),
        std=_numbers(found.get("std"), 1.0),
        resize_to=between,
        interpolation=_interpolation(found.get("interpolation", "bicubic")),
    )
    return InputSpec((channels, height, width), image=preprocessing)


def _of_transformers(found: Mapping[str, Any]) -> InputSpec:
    size, cut = _size(found.get("size")), _size(found.get("crop_size"))
    between: tuple[int, ...] | None = None
    target: tuple[int, ...]
    if not found.get("do_resize", True):
        raise ValueError("image_spec: found do_resize=False, expected a processor that gives images of one size")
    if found.get("do_center_crop") and len(cut) == 2:
        between, target = size, cut
    elif len(size) == 1:
        share = found.get("crop_pct")
        if share is None:
            raise ValueError(f"image_spec: found the shorter side {size[0]} alone, expected a size or a cut as well")
        target = (size[0], size[0])
        between = None if size[0] >= WHOLE else (int(size[0] / share),)
    else:
        target = size
    normalised = found.get("do_normalize", True)
    mean = _numbers(found.get("image_mean") if normalised else None, 0.0)
    std = _numbers(found.get("image_std") if normalised else None, 1.0)
    if found.get("rescale_offset"):  # of EfficientNet: pixels from -1 to 1
        mean = tuple(value + 1 for value in mean)
    if found.get("include_top"):
        std = tuple(value**2 for value in std)
    preprocessing = ImagePreprocessing(
        "RGB" if found.get("do_convert_rgb") or len(mean) != 1 or not normalised else "L",
        scale=float(found.get("rescale_factor", 1 / 255)) if found.get("do_rescale", True) else 1.0,
        mean=mean,
        std=std,
        resize_to=between,
        interpolation=_interpolation(found.get("resample", 2)),
    )
    return InputSpec((1 if preprocessing.mode == "L" else 3, *target), image=preprocessing)


def _check_alike(processor: Any, spec: InputSpec) -> None:
    """`ValueError` where the processor makes other numbers of an image than a service would."""
    assert spec.image is not None
    for size in ((120, 90), (75, 160)):
        ramp = np.add.outer(np.linspace(0, 120, size[1]), np.linspace(0, 120, size[0]))
        shades = np.stack([ramp, 0.5 * ramp, 240 - ramp], axis=2).astype(np.uint8)
        picture = Image.fromarray(shades).convert(spec.image.mode)
        file = io.BytesIO()
        picture.save(file, "PNG")
        expected = np.asarray(processor(picture, return_tensors="np")["pixel_values"])[0]
        found = image_to_array(file.getvalue(), spec, shades.size, "image_spec")
        level = spec.image.scale / min(spec.image.std)
        if expected.shape != found.shape or np.abs(expected - found).max() > LEVELS * level:
            raise ValueError(
                f"image_spec: found that {type(processor).__name__} takes steps that its settings do not say, expected "
                "resizing, a cut of the middle, scaling, mean and standard deviation; give an InputSpec with "
                "ImagePreprocessing(...) that does the same"
            )


def _size(given: Any) -> tuple[int, ...]:
    """(h, w), or (s,) for the shorter side."""
    if isinstance(given, Mapping):
        if "shortest_edge" in given:
            return (int(given["shortest_edge"]),)
        if "height" in given and "width" in given:
            return int(given["height"]), int(given["width"])
    if isinstance(given, int):
        return given, given
    if given is None:
        return ()
    raise ValueError(f"image_spec: found the size {given!r:.100}, expected height and width, or the shortest edge")


def _numbers(given: Any, default: float) -> tuple[float, ...]:
    values = (default,) if given is None else given if isinstance(given, list | tuple) else (given,)
    return tuple(float(value) for value in values)


def _interpolation(given: Any) -> Interpolation:
    """By its name, or as Pillow's number."""
    numbers = {kind.value: kind.name.lower() for kind in Image.Resampling}
    name = numbers.get(int(given)) if isinstance(given, int) else given
    name = "bicubic" if name == "random" else name  # of timm, while it trains
    if name not in INTERPOLATIONS:
        raise ValueError(f"image_spec: found the interpolation {given!r}, expected one of {', '.join(INTERPOLATIONS)}")
    return INTERPOLATIONS[name]
