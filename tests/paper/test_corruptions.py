"""The corruptions of CIFAR-10-C on synthetic images."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paper.corruptions import registry
from paper.corruptions.registry import CORRUPTIONS, STAND_INS
from paper.corruptions.weather import plasma

Bytes = npt.NDArray[np.uint8]
# With the published constants: glass blurs more at level 3 than at 1, which hides the displaced pixels; the affine part
# of the elastic transform shrinks with the level; frost darkens; saturation falls, then rises; spatter becomes mud;
# pixelation keeps edges that lie on its grid.
NOT_MONOTONE = {"glass_blur", "elastic_transform", "frost", "saturate", "spatter", "pixelate"}
EVERY = pytest.mark.parametrize("name", CORRUPTIONS)


@pytest.fixture(scope="module")
def images() -> Bytes:
    """Faintly coloured waves with edges, noise, black and white."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:32, :32] / 32
    down, right = rng.uniform(-2, 2, (2, 24, 1, 1))
    waves = 80 * np.sin(2 * np.pi * (down * rows + right * columns))
    values = 128 + waves[..., None] + rng.normal(0, 4, (24, 32, 32, 3))
    values[:, 7:18, 9:21] += 30 * rng.normal(size=(24, 1, 1, 3))
    values[0, :4], values[1, :4] = 0, 255
    clipped: Bytes = np.clip(values, 0, 255).astype(np.uint8)
    return clipped


def corrupted(name: str, images: Bytes, level: int, seed: int = 0) -> Bytes:
    return CORRUPTIONS[name](images, level, np.random.default_rng(seed))


def change(name: str, images: Bytes, level: int) -> float:
    return float(np.mean((corrupted(name, images, level).astype(np.float64) - images) ** 2))


def test_sixteen() -> None:
    assert len(CORRUPTIONS) == 16
    assert set(STAND_INS) <= set(CORRUPTIONS)


@EVERY
def test_dtype_shape_and_the_input_unchanged(name: str, images: Bytes) -> None:
    before = images.copy()
    for level in range(1, 6):
        result = corrupted(name, images, level)
        assert result.dtype == np.uint8
        assert result.shape == images.shape
        assert not np.array_equal(result, images)
    assert np.array_equal(images, before)


@EVERY
def test_the_seed_determines_the_result(name: str, images: Bytes) -> None:
    assert np.array_equal(corrupted(name, images, 4), corrupted(name, images, 4))


@EVERY
def test_the_rest_of_the_batch_does_not_matter(name: str, images: Bytes) -> None:
    for level in (2, 5):
        assert np.array_equal(corrupted(name, images, level)[:3], corrupted(name, images[:3], level))


@EVERY
def test_the_size_of_the_chunks_does_not_matter(name: str, images: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = corrupted(name, images, 3)
    monkeypatch.setattr(registry, "CHUNK", 7)
    assert np.array_equal(corrupted(name, images, 3), whole)


@EVERY
def test_changes_grow_with_the_level(name: str, images: Bytes) -> None:
    changes = [change(name, images, level) for level in range(1, 6)]
    if name in NOT_MONOTONE:
        assert min(changes) > 5
    else:
        assert all(first < second for first, second in pairwise(changes))


@pytest.mark.parametrize("name", sorted(NOT_MONOTONE - {"elastic_transform"}))
def test_level_5_is_further_than_level_1(name: str, images: Bytes) -> None:
    assert change(name, images, 5) > change(name, images, 1)


@EVERY
def test_black_and_white_images(name: str) -> None:
    flat = np.stack([np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 255, np.uint8)])
    for level in (1, 5):
        assert corrupted(name, flat, level).shape == flat.shape


@EVERY
@pytest.mark.parametrize("level", [0, 6, -1])
def test_a_level_out_of_range(name: str, level: int, images: Bytes) -> None:
    with pytest.raises(ValueError, match=f"found {level}, expected a whole number from 1 to 5"):
        corrupted(name, images[:1], level)


def test_pixels_of_the_wrong_kind(images: Bytes) -> None:
    wrong: list[npt.NDArray[Any]] = [images.astype(np.float32), images[:, :28], images[:0]]
    for wrong_images in wrong:
        with pytest.raises(ValueError, match=r"found .* expected uint8 \(n, 32, 32, 3\)"):
            corrupted("fog", wrong_images, 1)


def test_contrast_keeps_the_mean_of_each_channel(images: Bytes) -> None:
    mean = corrupted("contrast", images, 5).mean((1, 2))
    assert np.abs(mean - images.mean((1, 2))).max() < 1


def test_brightness_raises_the_value_and_keeps_the_ratio_of_channels() -> None:
    pixels = np.full((1, 32, 32, 3), (100, 50, 25), np.uint8)
    assert corrupted("brightness", pixels, 5)[0, 0, 0] == pytest.approx([176, 88, 44], abs=1)


def test_saturation_keeps_the_largest_channel() -> None:
    pixels = np.full((1, 32, 32, 3), (200, 150, 100), np.uint8)
    assert corrupted("saturate", pixels, 1)[0, 0, 0] == pytest.approx([200, 185, 170], abs=1)


def test_impulses_hit_the_published_share_of_values() -> None:
    grey = np.full((24, 32, 32, 3), 128, np.uint8)
    share = np.mean(corrupted("impulse_noise", grey, 5) != 128)
    assert share == pytest.approx(0.07, abs=0.005)


def test_gaussian_noise_has_the_published_deviation() -> None:
    grey = np.full((24, 32, 32, 3), 128, np.uint8)
    assert corrupted("gaussian_noise", grey, 5).std() / 255 == pytest.approx(0.1, rel=0.03)


def test_zoom_blur_is_the_mean_of_enlarged_sections(images: Bytes) -> None:
    """With SciPy's enlargement, one image at a time, as the published images were made."""
    enlarge = pytest.importorskip("scipy.ndimage").zoom
    image = images[2] / 255
    total, zooms = image.copy(), np.arange(1, 1.11, 0.01)
    for zoom in zooms:
        kept = int(np.ceil(32 / zoom))
        first = (32 - kept) // 2
        large = enlarge(image[first : first + kept, first : first + kept], (zoom, zoom, 1), order=1)
        trim = (len(large) - 32) // 2
        total += large[trim : trim + 32, trim : trim + 32]
    expected = np.clip(total / (len(zooms) + 1), 0, 1) * 255
    assert np.abs(corrupted("zoom_blur", images, 2)[2] - np.floor(expected)).max() <= 1


def test_a_plasma_without_deviations_but_one_is_interpolated() -> None:
    deviations = np.zeros((1, 4, 4))
    deviations[0, 2, 2] = 1
    heights = plasma(deviations, 2.0)[0]
    assert heights[2, 2] == 1
    assert heights[0, 0] == 0
    assert heights[0, 2] == heights[2, 0] == pytest.approx(0.5)
