"""From the stroke of a pen on the playground to the updated answer, in Chromium beside the service."""

import shutil
import statistics

from playwright.sync_api import sync_playwright

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import images
from benchmarks.serving.fitted import bundle
from benchmarks.serving.process import demur

# Each move is answered before the next: milliseconds until the answer is in the page and its frame is drawn.
STROKES = """async (count) => {
  const [view, paper] = ['#trial', '#paper'].map((name) => document.querySelector(name));
  const box = paper.getBoundingClientRect();
  const act = (kind, x, y) => paper.dispatchEvent(new PointerEvent(kind, {
    pointerId: 1, isPrimary: true, clientX: box.left + x * box.width, clientY: box.top + y * box.height,
  }));
  paper.setPointerCapture = () => {};
  act('pointerdown', 0.3, 0.3);
  const found = [];
  for (let i = 0; i < count; i += 1) {
    view.removeAttribute('data-answered');
    const answered = new Promise((done) => new MutationObserver((_, self) => {
      if (view.hasAttribute('data-answered')) { self.disconnect(); done(); }
    }).observe(view, { attributes: true }));
    const start = performance.now();
    act('pointermove', 0.3 + 0.4 * Math.abs(Math.sin(i)), 0.3 + 0.4 * Math.abs(Math.cos(1.3 * i)));
    await answered;
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    found.push(performance.now() - start);
  }
  return found;
}"""


def run(settings: Settings) -> Values:
    """The demo's network and `strokes` moves."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise MeasurementError("found no 'chromium' on PATH; install it (apt-get install chromium)")
    strokes = settings.choose(200, 5)
    with (
        demur(bundle(), settings.scratch / "playground.log", images(1), settings.threads) as server,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector("#trial[data-answered][aria-busy=false]")
        found = sorted(page.evaluate(STROKES, strokes))
    return {
        "strokes": strokes,
        "median_milliseconds": statistics.median(found),
        "percentile_95_milliseconds": found[round(0.95 * (strokes - 1))],
    }
