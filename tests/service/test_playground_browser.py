"""The playground in a real browser: what is drawn, turned, chosen and typed, and what the page makes of the answers."""

import base64
import dataclasses
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from demur.service.bundle import InputSpec
from demur.service.models.versions_file import Pinned, write_versions
from demur.service.security.api_keys import new_key
from tests.support.browser import CHROMIUM, needs_chromium
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, TEXT_SPEC, tokenizer_json, write_linear, write_tokens
from tests.support.model_folders import bundle
from tests.support.server import ROOT, RUNNING, Server, running, starting

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (make test installs it)")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe is not installed (make test installs it)"
)

pytestmark = [pytest.mark.slow, needs_chromium]
Page = Any
DIGITS = ROOT / "tests/golden/v1/bundle"
# A three and a seven with its bar, drawn by the mouse on a sheet of side 1.
THREE = [
    [
        (0.3, 0.2),
        (0.5, 0.12),
        (0.68, 0.22),
        (0.66, 0.4),
        (0.46, 0.48),
        (0.68, 0.57),
        (0.7, 0.77),
        (0.5, 0.88),
        (0.28, 0.79),
    ]
]
SEVEN = [[(0.28, 0.16), (0.72, 0.14), (0.62, 0.42), (0.52, 0.65), (0.44, 0.88)], [(0.34, 0.54), (0.74, 0.5)]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(DIGITS) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Page]:
    """The digits' page, with its first answer; nothing may be said in the console or asked elsewhere."""
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    opened = context.new_page()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: said.append(request.url) if not own(request.url, server) else None)
    opened.goto(f"http://127.0.0.1:{server.port}/")
    answered(opened)
    yield opened
    context.close()
    assert said == []


def own(url: str, server: Server) -> bool:
    return url.startswith((f"http://127.0.0.1:{server.port}/", "data:", "blob:"))


def answered(page: Page) -> None:
    """Wait until what was sent last is answered."""
    page.wait_for_selector("#trial[data-answered][aria-busy=false]")


def after(page: Page, act: Any) -> None:
    """Do it, and wait until what it sent last is answered."""
    page.evaluate("document.querySelector('#trial').removeAttribute('data-answered')")
    act()
    answered(page)


def draw(page: Page, strokes: Sequence[Sequence[tuple[float, float]]]) -> None:
    box = page.locator("#paper").bounding_box()

    def at(x: float, y: float) -> tuple[float, float]:
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    page.get_by_role("button", name="Clear").click()
    for first, *others in strokes:
        page.mouse.move(*at(*first))
        page.mouse.down()
        for point in others:
            page.mouse.move(*at(*point), steps=4)
        page.mouse.up()


def turn(page: Page, value: int, name: str = "turn") -> None:
    page.locator(f"#{name}").fill(str(value))


def decision(page: Page) -> str:
    return str(page.locator("#decision").inner_text())


def label(page: Page) -> str:
    """The class with the longest bar of ours."""
    names = page.locator(".bars dt").all_inner_texts()
    shares = [
        float(text.removesuffix(" %")) for text in page.locator(".bars dd:nth-of-type(odd) .value").all_inner_texts()
    ]
    return str(names[int(np.argmax(shares))])


def entropy(page: Page) -> float:
    found = re.search(r"Entropy: (\S+) of", page.locator("#answer").inner_text())
    assert found is not None
    return float(found[1])


def test_a_bar_is_a_one_and_a_point_a_dot(page: Page) -> None:
    after(page, lambda: draw(page, [[(0.5, 0.1), (0.5, 0.9)]]))
    assert label(page) == "1"
    middle = seen(page, 8, 8)[:, 3:5]
    assert middle[1:7].min() > 240
    after(page, lambda: draw(page, [[(0.5, 0.5), (0.5, 0.5)]]))
    assert seen(page, 8, 8).max() > 100


@pytest.mark.parametrize(("strokes", "name"), [(THREE, "3"), (SEVEN, "7")])
def test_a_drawn_digit_is_accepted_and_on_its_side_it_is_not(page: Page, strokes: Any, name: str) -> None:
    after(page, lambda: draw(page, strokes))
    assert (decision(page), label(page)) == ("Accepted", name)
    upright = entropy(page)
    after(page, lambda: turn(page, 90))
    assert decision(page) == "Rejected" or entropy(page) > 2 * upright
    after(page, lambda: turn(page, 0))
    assert decision(page) == "Accepted"


@pytest.mark.parametrize("scale", [0.15, 0.5, 1.0])
def test_a_digit_is_the_same_however_large_it_is_drawn(page: Page, scale: float) -> None:
    after(page, lambda: draw(page, [[(0.1 + scale * x, 0.05 + scale * y) for x, y in line] for line in THREE]))
    assert (decision(page), label(page)) == ("Accepted", "3")
    rows, columns = np.nonzero(seen(page, 8, 8) > 40)
    assert (rows.min(), rows.max()) == (0, 7)
    assert np.ptp(columns) < 6


def seen(page: Page, height: int, width: int) -> np.ndarray:
    pixels = f"getContext('2d').getImageData(0, 0, {width}, {height}).data"
    shown = page.evaluate(f"[...document.querySelector('#seen').{pixels}]")
    return np.reshape(shown, (height, width, 4))[..., 0]


@pytest.mark.parametrize("name", ["Noise", "Checkerboard", "Photograph"])
def test_what_is_no_digit_is_rejected_with_a_reason(page: Page, name: str) -> None:
    after(page, lambda: page.get_by_role("button", name=name, exact=True).click())
    assert decision(page) == "Rejected"
    assert "held-out inputs" in page.locator("#sentence").inner_text()


def test_noise_on_a_digit_makes_it_uncertain(page: Page) -> None:
    after(page, lambda: draw(page, THREE))
    sure = entropy(page)
    after(page, lambda: turn(page, 80, "noise"))
    assert decision(page) == "Rejected" or entropy(page) > 2 * sure


def test_the_threshold_decides_and_can_be_reset(page: Page) -> None:
    after(page, lambda: draw(page, THREE))
    assert decision(page) == "Accepted"
    page.locator("#threshold").fill(page.locator("#threshold").get_attribute("min"))
    assert decision(page) == "Rejected"
    assert "your threshold" in page.locator("#sentence").inner_text()
    page.get_by_role("button", name="Reset").click()
    assert decision(page) == "Accepted"
    chart = page.locator("#answer svg").bounding_box()
    page.mouse.click(chart["x"] + 1, chart["y"] + chart["height"] / 2)
    assert decision(page) == "Rejected"


def photograph() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 80, 3), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def choose(page: Page, name: str, kind: str, content: bytes) -> None:
    page.get_by_label("Choose a picture").set_input_files({"name": name, "mimeType": kind, "buffer": content})


def test_a_chosen_picture_is_sent_as_it_is(page: Page) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or ""))
    after(page, lambda: choose(page, "photo.png", "image/png", photograph()))
    assert decision(page) == "Rejected"
    assert json.loads(sent[-1]) == {"images": [base64.b64encode(photograph()).decode()]}
    after(page, lambda: turn(page, 90))
    assert json.loads(sent[-1]) != {"images": [base64.b64encode(photograph()).decode()]}


@pytest.mark.parametrize("size", [(8, 8), (50, 80), (280, 280), (5, 3)])
def test_what_the_network_sees_of_a_picture_is_what_the_service_makes_of_it(page: Page, size: tuple[int, int]) -> None:
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, size, np.uint8))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    after(page, lambda: choose(page, "grey.png", "image/png", stream.getvalue()))
    expected = np.asarray(picture.resize((8, 8), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(seen(page, 8, 8), expected, atol=1)


@pytest.mark.parametrize(("name", "kind"), [("broken.png", "image/png"), ("notes.txt", "text/plain")])
def test_a_file_that_is_no_picture_is_named(page: Page, name: str, kind: str) -> None:
    choose(page, name, kind, photograph()[:40])
    page.locator("#sentence", has_text=f"{name} cannot be read").wait_for()
    assert decision(page) == "No answer"


def test_a_folder_that_is_dropped_is_no_picture(page: Page) -> None:
    page.evaluate("() => { FileReader.prototype.readAsDataURL = function () { this.onerror(); }; }")
    choose(page, "folder", "", b"")
    page.locator("#sentence", has_text="folder cannot be read").wait_for()


def test_an_answer_that_is_not_wanted_any_more_is_not_missed(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.clock.install()
    page.goto(f"http://127.0.0.1:{server.port}/")
    answered(page)
    page.route("**/predict*", lambda _: None)
    page.get_by_role("button", name="Noise").click()
    choose(page, "broken.png", "image/png", b"no picture")
    page.locator("#sentence", has_text="broken.png cannot be read").wait_for()
    page.clock.run_for(5000)
    assert "broken.png cannot be read" in page.locator("#sentence").inner_text()
    page.close()


def test_the_version_that_is_shown_answers_beside_a_canary(browser: Any, tmp_path: Path) -> None:
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    write_versions(tmp_path, {"a": Pinned("9", {"10": 0.99})})
    with starting("--models", str(tmp_path)) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_until_loaded()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        answered(page)
        for name in ("The lowest", "The highest"):
            after(page, page.get_by_role("button", name=name).click)
        assert "a, version 9" in page.locator("#model").inner_text()
        assert not page.locator("#problem").is_visible()
        page.close()


def test_no_old_decision_stands_where_there_is_no_answer(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    answered(page)
    page.route("**/predict*", lambda route: route.abort())
    page.get_by_role("button", name="Noise").click()
    page.locator("#decision", has_text="No answer").wait_for()
    assert "cannot be reached" in page.locator("#sentence").inner_text()
    page.unroute("**/predict*")
    page.locator("#decision", has_text="Rejected").wait_for()  # it was asked again
    page.close()


def test_answers_of_another_bundle_are_told(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.route("**/model", lambda route: route.fulfill(json={**route.fetch().json(), "digest": "0" * 64}))
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.locator("#problem", has_text="was replaced").wait_for()
    page.unroute("**/model")
    page.route("**/predict*", lambda route: route.fulfill(status=422, json={"detail": "found 8 entries"}))
    page.get_by_role("button", name="Noise").click()
    page.locator("#sentence", has_text="found 8 entries").wait_for()
    page.locator("#problem", has_text="was replaced").wait_for()
    page.close()


def test_images_need_not_be_square(browser: Any, tmp_path: Path) -> None:
    made = write_linear(tmp_path / "bundle", outputs=3, spec=IMAGE_SPEC)
    with running(made.path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        answered(page)
        box = page.locator("#paper").bounding_box()
        assert box["width"] / box["height"] == pytest.approx(5 / 4, rel=0.02)
        picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, (30, 20), np.uint8))
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        after(page, lambda: choose(page, "grey.png", "image/png", stream.getvalue()))
        expected = np.asarray(picture.resize((5, 4), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(seen(page, 4, 5), expected, atol=1)
        after(page, lambda: turn(page, 90))
        after(page, lambda: turn(page, 9, "blur"))
        after(page, lambda: draw(page, SEVEN))
        assert decision(page) in ("Accepted", "Rejected")
        page.close()


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.get_by_role("button", name="A 3").focus()
    after(page, lambda: page.keyboard.press("Enter"))
    assert (decision(page), label(page)) == ("Accepted", "3")
    page.locator("#turn").focus()
    after(page, lambda: [page.keyboard.press("ArrowRight") for _ in range(9)])
    assert page.locator("output[for=turn]").inner_text() == "45°"
    reached = set()
    page.locator("nav a").first.focus()
    for _ in range(30):
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        page.keyboard.press("Tab")
    assert reached >= {"API", "Clear", "A 7", "turn", "blur", "noise", "centred", "threshold", "Reset"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(page: Page, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The policy of the page keeps foreign scripts out; a tester's is evaluated by the browser itself.
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


def test_a_table_has_a_form(browser: Any, tmp_path: Path) -> None:
    names = ("a", "a very long name of a column, with its unit in brackets [mmol/l] " * 2, "c", 'say "d"')
    made = write_linear(tmp_path / "bundle", outputs=3, spec=dataclasses.replace(FEATURE_SPEC, feature_names=names))
    with running(made.path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        answered(page)
        after(page, lambda: page.get_by_label("as a number").first.fill("1000"))
        assert page.locator(".bars dt").count() == 3
        after(page, lambda: page.get_by_role("button", name="The lowest").click())
        assert page.get_by_label("as a number").first.input_value() == page.locator("#feature-0").input_value()
        for width in (1000, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("#feature-1").bounding_box()["width"] > 70
        assert decision(page) in ("Accepted", "Rejected")
        page.close()


def test_a_table_begins_with_a_usual_row(browser: Any, tmp_path: Path) -> None:
    spec = dataclasses.replace(FEATURE_SPEC, typical=((0.5, -1.25, 3.0, 0.0), (1.0, 2.0, 3.0, 4.0)))
    with running(write_linear(tmp_path / "bundle", outputs=3, spec=spec).path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        answered(page)
        cells = page.get_by_label("as a number")
        assert [cell.input_value() for cell in cells.all()] == ["0.5", "-1.25", "3", "0"]
        after(page, lambda: page.get_by_role("button", name="Usual row 2").click())
        assert [cell.input_value() for cell in cells.all()] == ["1", "2", "3", "4"]
        page.close()


def test_a_regression_has_an_interval(browser: Any, tmp_path: Path) -> None:
    made = write_linear(tmp_path / "bundle", outputs=1, spec=InputSpec(shape=(1,)), size=2, regression=True)
    with running(made.path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        answered(page)
        after(page, page.get_by_role("button", name="The highest").click)
        assert " to " in page.locator("#answer tbody td").nth(1).inner_text()
        page.close()


def test_tokens_are_typed(browser: Any, tmp_path: Path) -> None:
    held: list[Any] = []
    with running(write_tokens(tmp_path / "bundle").path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_text("Enter 2 whole numbers").wait_for()
        after(page, lambda: page.get_by_label("2 tokens").fill("1 2"))
        page.get_by_label("2 tokens").fill("1 x")
        assert "expected whole numbers" in page.locator("#input [role=status]").inner_text()
        page.get_by_label("2 tokens").fill("1")
        assert "Found 1 tokens, expected 2" in page.locator("#input [role=status]").inner_text()
        assert decision(page) == "No answer"
        page.route("**/predict*", lambda route: held.append(route))
        page.get_by_label("2 tokens").fill("1 2")
        page.wait_for_selector("#trial[aria-busy=true]")
        page.get_by_label("2 tokens").fill("")  # while an answer is awaited, which must not be shown
        for route in held:
            route.continue_()
        page.wait_for_selector("#trial[aria-busy=false]")
        assert decision(page) == "No answer"
        page.close()


def test_texts_are_typed(browser: Any, tmp_path: Path) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    with running(path) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_text("Enter a text.").wait_for()
        after(page, lambda: page.get_by_label("Text", exact=True).fill("the film was good"))
        assert decision(page) != "No answer"
        assert page.get_by_text("has more than the 4 tokens that the network takes").is_visible()
        page.get_by_label("Text", exact=True).fill("  ")
        assert decision(page) == "No answer"
        assert page.get_by_text("Enter a text.").is_visible()
        assert [one["id"] for one in axe.Axe().run(page).response["violations"]] == []
        page.close()


def test_the_live_view_counts_what_was_asked(page: Page) -> None:
    after(page, lambda: page.get_by_role("button", name="Noise", exact=True).click())
    address = page.url
    for _ in range(2):
        assert page.request.post(f"{address}predict", data={"inputs": [[[[0.0] * 8] * 8]] * 3}).ok
    page.get_by_role("tab", name="Try it").focus()
    page.keyboard.press("ArrowRight")
    tile = page.locator(".tiles div", has_text="Examples answered").locator("dd")
    tile.wait_for()
    assert tile.inner_text() == "6"  # without what the page itself asked
    assert page.locator("#live svg rect").count() == 10
    assert not page.locator("#trial").is_visible()
    assert [
        (one["id"], [node["html"] for node in one["nodes"]]) for one in axe.Axe().run(page).response["violations"]
    ] == []


def test_a_service_with_keys_asks_for_one(browser: Any, tmp_path: Path) -> None:
    key, entry = new_key("someone")
    (tmp_path / "keys").write_text(f"{entry.line}\n")
    with running(DIGITS, DEMUR_API_KEYS_FILE=str(tmp_path / "keys")) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.get_by_label("API key").fill("wrong …")
        page.keyboard.press("Enter")
        page.locator("#key-note", has_text="without accents").wait_for()
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        page.locator("#key-note", has_text="not known here").wait_for()
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        answered(page)
        assert not page.locator("#key-form").is_visible()
        assert decision(page) in ("Accepted", "Rejected")
        page.close()
