"""service/codec/images.py: decoded as a straightforward computation says, or refused."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, PngImagePlugin

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.arrays import InputError, InputLimits, InputTooLarge
from demur.service.codec.image_cost import without_texts
from demur.service.codec.images import array_from_images, image_to_array
from tests.support.client import base64_text, encoded, pixel_bomb

Array = npt.NDArray[Any]
HEIGHT, WIDTH = 4, 6
MAX_PIXELS = 10_000
ONE_LEVEL = 1.001  # Pillow rounds to whole levels


def spec(
    mode: Any = "L", *, resize: bool = False, size: tuple[int, int] = (HEIGHT, WIDTH), **changes: Any
) -> InputSpec:
    channels = 1 if mode == "L" else 3
    return InputSpec(shape=(channels, *size), image=ImagePreprocessing(mode=mode, resize=resize, **changes))


def levels(data: bytes, mode: str = "L", **changes: Any) -> Array:
    """The decoded picture in levels 0 to 255, (C, H, W)."""
    return image_to_array(data, spec(mode, scale=1.0, **changes), MAX_PIXELS, "images[0]")


def random_pixels(*channels: int, dtype: Any = np.uint8, high: int = 256) -> Array:
    return np.random.default_rng(5).integers(0, high, (HEIGHT, WIDTH, *channels)).astype(dtype)


def grey_of(colour: Array) -> Array:
    """ITU-R 601-2 luma, as Pillow documents it, (H, W, 3) -> (H, W)."""
    grey: Array = colour.astype(np.float64) @ [0.299, 0.587, 0.114]
    return grey


def planes(colour: Array) -> Array:
    return colour.transpose(2, 0, 1)


def test_grey_pixels_come_out_unchanged() -> None:
    pixels = random_pixels()
    found = levels(encoded(Image.fromarray(pixels)))
    assert found.dtype == np.float32
    assert found.shape == (1, HEIGHT, WIDTH)
    np.testing.assert_array_equal(found[0], pixels)


def test_colours_come_out_as_planes() -> None:
    pixels = random_pixels(3)
    np.testing.assert_array_equal(levels(encoded(Image.fromarray(pixels)), "RGB"), planes(pixels))


def test_colour_to_grey_and_grey_to_colour() -> None:
    colour, grey = random_pixels(3), random_pixels()
    np.testing.assert_allclose(levels(encoded(Image.fromarray(colour)))[0], grey_of(colour), atol=ONE_LEVEL)
    np.testing.assert_array_equal(levels(encoded(Image.fromarray(grey)), "RGB"), np.stack([grey] * 3))


def test_scale_mean_and_std_apply_in_this_order() -> None:
    pixels = random_pixels(3)
    mean, std = (0.1, 0.5, -0.2), (0.5, 2.0, 0.25)
    found = image_to_array(
        encoded(Image.fromarray(pixels)), spec("RGB", scale=1 / 255, mean=mean, std=std), MAX_PIXELS, "images[0]"
    )
    for channel in range(3):
        expected = (pixels[..., channel] / 255 - mean[channel]) / std[channel]
        np.testing.assert_allclose(found[channel], expected, rtol=1e-5, atol=1e-6)
    single = image_to_array(
        encoded(Image.fromarray(pixels)), spec("RGB", scale=0.5, mean=(3.0,), std=(2.0,)), MAX_PIXELS, "images[0]"
    )
    np.testing.assert_allclose(single, (planes(pixels) * 0.5 - 3) / 2, rtol=1e-6)


@pytest.mark.parametrize("channels", [2, 4])
def test_an_alpha_channel_is_laid_over_black(channels: int) -> None:
    pixels = random_pixels(channels)
    pixels[0, :3, -1] = (0, 255, 128)
    picture = Image.fromarray(pixels)
    assert picture.mode == {2: "LA", 4: "RGBA"}[channels]
    over_black = pixels[..., :-1] * (pixels[..., -1:] / 255.0)
    colour = np.broadcast_to(over_black, (HEIGHT, WIDTH, 3))
    np.testing.assert_allclose(levels(encoded(picture), "RGB"), planes(colour), atol=ONE_LEVEL)
    np.testing.assert_allclose(levels(encoded(picture))[0], grey_of(colour), atol=2 * ONE_LEVEL)


def palette_picture() -> tuple[Image.Image, Array, Array]:
    indices, palette = random_pixels(high=5), random_pixels(3)[:, :5].reshape(-1, 3)[:5]
    picture = Image.fromarray(indices)
    picture.putpalette(palette.tobytes())
    assert picture.mode == "P"
    return picture, indices, palette


def test_a_palette_is_looked_up() -> None:
    picture, indices, palette = palette_picture()
    np.testing.assert_array_equal(levels(encoded(picture), "RGB"), planes(palette[indices]))


@pytest.mark.parametrize("transparency", [2, bytes([255, 128, 0])], ids=["one colour", "a table"])
def test_transparent_palette_colours_are_laid_over_black(transparency: Any) -> None:
    picture, indices, palette = palette_picture()
    table = [255, 255, 0, 255, 255] if transparency == 2 else [255, 128, 0, 255, 255]
    expected = palette[indices] * (np.array(table)[indices][..., None] / 255)
    found = levels(encoded(picture, transparency=transparency), "RGB")
    np.testing.assert_allclose(found, planes(expected), atol=ONE_LEVEL)


def test_one_bit_pictures() -> None:
    bits = random_pixels(high=2).astype(bool)
    np.testing.assert_array_equal(levels(encoded(Image.fromarray(bits)))[0], bits * 255)


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    pixels = random_pixels(dtype=np.uint16, high=65536)
    pixels[0, :4] = (0, 255, 256, 65535)
    data = encoded(Image.fromarray(pixels))
    np.testing.assert_allclose(levels(data)[0], pixels / 257.0, atol=0.5)
    np.testing.assert_allclose(levels(data, "RGB"), np.stack([pixels / 257.0] * 3), atol=0.5)


ORIENTATIONS: dict[int, Callable[[Array], Array]] = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.transpose(a), 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_camera_s_rotation_is_undone(orientation: int) -> None:
    pixels = random_pixels()
    expected = ORIENTATIONS[orientation](pixels)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(pixels), exif=exif.tobytes())
    np.testing.assert_array_equal(levels(data, size=expected.shape)[0], expected)


def test_jpeg() -> None:
    smooth = np.add.outer(np.linspace(20, 120, 16), np.linspace(0, 100, 24)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.fromarray(smooth), "JPEG", quality=95, exif=exif.tobytes())
    np.testing.assert_allclose(levels(data, size=(24, 16))[0], np.rot90(smooth, -1), atol=4)
    colour = np.stack([smooth, smooth // 2, 255 - smooth], axis=-1)
    found = levels(encoded(Image.fromarray(colour), "JPEG", quality=95, subsampling=0), "RGB", size=(16, 24))
    np.testing.assert_allclose(found, planes(colour), atol=8)


def slow_resize(pixels: Array, length: int) -> Array:
    """Bilinear along the first axis, widened to the step when shrinking: weights 1 - |distance| / width."""
    step = len(pixels) / length
    width = max(step, 1.0)
    rows = []
    for i in range(length):
        centre = (i + 0.5) * step
        weights = np.array([max(0.0, 1 - abs(j + 0.5 - centre) / width) for j in range(len(pixels))])
        rows.append(weights @ pixels / weights.sum())
    return np.array(rows)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("whole", [(40, 64), (64, 40), (33, 33), (20, 20), (17, 90)], ids=str)
@pytest.mark.parametrize("resize_to", [(20,), (24,), (31,), (20, 30), (24, 36)], ids=str)
def test_the_middle_is_that_of_the_whole_resized_image(
    resize_to: tuple[int, ...], whole: tuple[int, int], interpolation: str
) -> None:
    waves = np.sin(np.arange(whole[0]) / 9)[:, None] + np.cos(
        np.arange(whole[1]) / 7
    )  # Pillow may turn its passes round
    picture = Image.fromarray((128 + 50 * waves).astype(np.uint8))
    between = resize_to if len(resize_to) == 2 else tuple(resize_to[0] * side // min(whole) for side in whole)
    resized = picture.resize((between[1], between[0]), Image.Resampling[interpolation.upper()])
    left, upper = (round((length - 20) / 2) for length in (between[1], between[0]))
    expected = np.asarray(resized.crop((left, upper, left + 20, upper + 20)), np.float32)
    found = levels(encoded(picture), resize=True, size=(20, 20), resize_to=resize_to, interpolation=interpolation)
    np.testing.assert_allclose(found[0], expected, atol=20 if interpolation == "nearest" else ONE_LEVEL)


def test_the_middle_of_a_very_long_image_takes_no_more_memory() -> None:
    column = Image.fromarray(np.full((MAX_PIXELS, 1), 90, np.uint8))
    found = levels(encoded(column), resize=True, size=(64, 64), resize_to=(2**14,))
    np.testing.assert_allclose(found, 90)


@pytest.mark.parametrize("size", [(2, 3), (8, 12), (4, 3), (9, 6), (1, 1)], ids=str)
def test_another_size_is_resized_or_refused(size: tuple[int, int]) -> None:
    pixels = random_pixels()
    data = encoded(Image.fromarray(pixels))
    expected = slow_resize(slow_resize(pixels, size[0]).T, size[1]).T
    np.testing.assert_allclose(levels(data, resize=True, size=size)[0], expected, atol=2 * ONE_LEVEL)
    with pytest.raises(InputError) as caught:
        levels(data, size=size)
    assert caught.value.found == "6 x 4 pixels"
    assert caught.value.expected == f"{size[1]} x {size[0]} pixels (no resizing)"


def test_several_pictures_are_stacked_and_data_urls_are_taken() -> None:
    pixels = random_pixels()
    texts = [base64_text(encoded(Image.fromarray(part))) for part in (pixels, 255 - pixels)]
    texts.append("data:image/png;base64," + texts[0])
    found = array_from_images(texts, spec(scale=1.0), InputLimits(3, MAX_PIXELS))
    np.testing.assert_array_equal(found[:, 0], [pixels, 255 - pixels, pixels])
    with pytest.raises(InputTooLarge, match="images: found 3 examples, expected at most 2"):
        array_from_images(texts, spec(), InputLimits(2, MAX_PIXELS))


@pytest.mark.parametrize(("width", "height"), [(101, 100), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_a_pixel_bomb_is_refused_by_its_header(width: int, height: int) -> None:
    with pytest.raises(InputTooLarge, match=r"images\[0\]: found .* pixels"):
        levels(pixel_bomb(width, height))


def test_as_many_pixels_as_allowed_are_decoded() -> None:
    picture = Image.new("L", (100, 100), 7)
    assert levels(encoded(picture), size=(100, 100)).max() == 7


def test_all_pictures_of_a_request_share_their_pixels() -> None:
    texts = [base64_text(encoded(Image.fromarray(random_pixels())))] * 3  # 6 x 4 pixels each
    limits = InputLimits(10, MAX_PIXELS, max_total_pixels=60)
    assert len(array_from_images(texts[:2], spec(), limits)) == 2
    with pytest.raises(InputTooLarge, match=r"images\[2\]: found 24 pixels .* at most 60 in all images"):
        array_from_images(texts, spec(), limits)


def test_examples_are_bounded_by_the_memory_that_they_take() -> None:
    size = 4 * math.prod(spec().shape)
    limits = InputLimits(10, MAX_PIXELS, max_bytes=2 * size + 1)
    assert limits.rows(spec()) == 2
    assert InputLimits(10, MAX_PIXELS, max_bytes=1).rows(spec()) == 1
    texts = [base64_text(encoded(Image.fromarray(random_pixels())))] * 3
    with pytest.raises(InputTooLarge, match="3 examples, expected at most 2"):
        array_from_images(texts, spec(), limits)


def test_rows_are_bounded_whatever_their_width() -> None:
    with pytest.raises(InputTooLarge, match="1 x 65537 pixels, expected at most 65536 rows"):
        image_to_array(pixel_bomb(1, 2**16 + 1), spec(resize=True), 2**20, "images[0]")
    with pytest.raises(InputError, match="cannot be decoded"):  # its header claims what is not there
        image_to_array(pixel_bomb(1, 2**16), spec(resize=True), 2**20, "images[0]")


FLAT = Image.new("L", (WIDTH, HEIGHT), 77)


def text(kind: str, size: int) -> PngImagePlugin.PngInfo:
    found = PngImagePlugin.PngInfo()
    if kind == "iTXt":
        found.add_itxt("XML:com.adobe.xmp", "x" * size, zip=True)
    else:
        found.add_text("workflow", "x" * size, zip=kind == "zTXt")
    return found


@pytest.mark.parametrize(
    "options",
    [
        *({"pnginfo": text(kind, 5 * 2**20)} for kind in ("tEXt", "zTXt", "iTXt")),
        {"icc_profile": bytes(3 * 2**20)},
        {"icc_profile": bytes(100), "pnginfo": text("zTXt", 2**21), "exif": b"Exif\0\0no TIFF"},
    ],
)
def test_texts_and_profiles_of_a_png_are_left_out_whatever_their_size(options: dict[str, Any]) -> None:
    np.testing.assert_array_equal(levels(encoded(FLAT, **options)), levels(encoded(FLAT)))
    cut = encoded(FLAT, **options)[:-30]
    with pytest.raises(InputError, match="cannot be decoded"):
        levels(cut)


def test_an_image_without_texts_stays_as_it_is() -> None:
    data = encoded(FLAT)
    assert without_texts(data) == data
    assert without_texts(data + b"tEXt") == data
    private = PngImagePlugin.PngInfo()
    private.add(b"prVt", b"iCCP")
    named = encoded(FLAT, pnginfo=private)
    assert b"iCCP" in named
    assert without_texts(named) == named
    jpeg = encoded(FLAT, "JPEG", comment=b"tEXt")
    assert without_texts(jpeg) is jpeg


def with_scans(count: int) -> bytes:
    """A progressive JPEG of one grey, whose last scan, which is empty, is there so often that it has `count`."""
    data = encoded(FLAT, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    head, scan = data[:last], data[last:-2]
    return head + scan * (count - head.count(b"\xff\xda")) + data[-2:]


def test_scans_of_a_jpeg_are_bounded_before_they_are_decoded() -> None:
    np.testing.assert_array_equal(levels(with_scans(100)), levels(encoded(FLAT, "JPEG", progressive=True)))
    with pytest.raises(InputTooLarge, match="a JPEG of 101 scans, expected at most 100"):
        levels(with_scans(101))
