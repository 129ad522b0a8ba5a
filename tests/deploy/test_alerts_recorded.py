"""Each alert by its real cause in the real service, and an hour of ordinary work in silence."""

import contextlib
import io
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from demur.service.bundle import MODEL, InputRange, read_bundle
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.settings import Settings
from tests.support.bundles import FEATURE_SPEC, rewrite, write_linear
from tests.support.client import serving
from tests.support.digits import GOLDEN, Array, digits, inverted, turned
from tests.support.recorded_metrics import Recording, check_firing, record
from tests.support.secrets import secret_file
from tests.support.server import Server, running
from tests.support.slow import Slow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH (Debian package: prometheus)"),
]
BUNDLE = GOLDEN / "v1_fixed" / "bundle"
NPY = {"Content-Type": "application/x-npy"}
QUIET: dict[int, tuple[str, ...]] = dict.fromkeys(range(5, 61, 5), ())
ROWS = 20


class Digits:
    """A service of the digits bundle, and the requests of one minute after the other."""

    def __init__(self, server: Server) -> None:
        self.server, self._next = server, itertools.cycle(range(len(digits())))

    def draw(self, rows: int) -> Array:
        return digits()[[next(self._next) for _ in range(rows)]]

    def ask(self, inputs: Array, status: int = 200, **headers: str) -> bytes:
        """The answer."""
        stream = io.BytesIO()
        np.save(stream, np.ascontiguousarray(inputs, np.float32))
        found, _, body = self.server.request("POST", "/predict", stream.getvalue(), NPY | headers)
        assert found == status, body
        return body

    def label(self, answer: bytes, wrong: int) -> None:
        """Report that an answer was right, but for its first `wrong` examples."""
        found = json.loads(answer)
        names = [one["label"] for one in found["predictions"]]
        others = [f"{(int(name) + 1) % 10}" for name in names[:wrong]]
        body = json.dumps({"receipt": found["receipt"], "labels": others + names[wrong:]}).encode()
        assert self.server.request("POST", "/feedback", body, {"Content-Type": "application/json"})[0] == 200

    def scrape(self) -> str:
        return self.server.request("GET", "/metrics")[2].decode()

    def record(self, minutes: int, minute: Callable[[int], object]) -> Recording:
        return record(minutes, minute, self.scrape)


@contextlib.contextmanager
def served(bundle: Path = BUNDLE, **settings: str) -> Iterator[Digits]:
    with running(bundle, **{f"DEMUR_{name.upper()}": value for name, value in settings.items()}) as server:
        if "models" in settings:
            server.wait_until_loaded()
        yield Digits(server)


def test_an_hour_of_one_request_a_minute_is_silent(tmp_path: Path) -> None:
    """Two of them fail: not a reason to wake anybody."""
    with served() as service:
        recording = service.record(60, lambda _: service.ask(service.draw(1)))
    for minute, scrape in enumerate(recording.minutes):
        errors = 'demur_errors_total{reason="internal",job="models",instance="a:8000"}'
        assert scrape[errors] == "0.0"  # before the first
        scrape[errors] = f"{(minute > 20) + (minute > 24)}"
    check_firing(tmp_path, recording, QUIET)


def test_an_hour_of_ordinary_traffic_is_silent_whatever_single_clients_do(tmp_path: Path) -> None:
    """A quarter of the requests with a deadline that none can keep, others that cannot be read, large ones."""

    def minute(number: int) -> None:
        for _ in range(2):
            service.ask(service.draw(ROWS))
            service.ask(service.draw(1))
        for _ in range(2):
            service.ask(service.draw(1), 504, **{"X-Request-Timeout": "0.0001"})
        for body, status in ((b"{", 400), (b'{"inputs": [1]}', 422)):
            assert service.server.request("POST", "/predict", body)[0] == status
        service.server.request("GET", "/nowhere")
        if number % 10 == 0:
            service.ask(service.draw(400))

    with served() as service:
        service.draw(20)  # two of the first score above all 180 held-out ones, of 719 eight: evidence by chance
        recording = service.record(60, minute)
    check_firing(tmp_path, recording, QUIET)


def test_the_first_errors_count() -> None:
    """A series that began with its first error would hide it from a rate."""
    with served(request_timeout_seconds="0.000001") as service:
        recording = service.record(1, lambda _: service.ask(service.draw(1), 504))
    before, after = recording.minutes
    for series in (
        'demur_errors_total{reason="deadline",job="models",instance="a:8000"}',
        'demur_http_requests_total{method="POST",route="/predict",status="504",job="models",instance="a:8000"}',
    ):
        assert (before[series], after[series]) == ("0.0", "1.0")


def bright(images: Array) -> Array:
    """As nobody had divided them by 255."""
    return 255 * images


REJECTED = ("DemurScoreShift", "DemurRejectRate", "DemurDrift", "DemurClientMistake")
SHIFTS: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "turned by 90 degrees": (turned, REJECTED),
    "black and white exchanged": (inverted, REJECTED),
    "0 to 255 instead of 0 to 1": (bright, (*REJECTED, "DemurInputsOutOfRange")),
}


def with_range(out: Path) -> Path:
    """The bundle as a fit of today writes it."""
    manifest = read_bundle(BUNDLE).manifest
    spec = replace(manifest.input, range=InputRange((0.0,), (1.0,)))
    return rewrite(BUNDLE, out, manifest=replace(manifest, input=spec))


@pytest.mark.parametrize(("change", "alerts"), SHIFTS.values(), ids=SHIFTS.keys())
def test_inputs_that_have_changed(change: Callable[[Array], Array], alerts: tuple[str, ...], tmp_path: Path) -> None:
    """Half an hour of ordinary digits, and then of others."""

    def minute(number: int) -> None:
        images = service.draw(ROWS)
        service.ask(images if number < 30 else change(images))

    with served(with_range(tmp_path / "bundle")) as service:
        recording = service.record(70, minute)
    check_firing(tmp_path, recording, {30: (), 70: alerts})


def test_scores_that_shift_while_few_are_rejected(tmp_path: Path) -> None:
    """A bundle without added weights: it is surer of images that are too bright, and answers them."""

    def minute(number: int) -> None:
        images = service.draw(ROWS)
        service.ask(images if number < 30 else bright(images))

    with served(GOLDEN / "v1_subnetwork" / "bundle") as service:
        recording = service.record(70, minute)
    check_firing(tmp_path, recording, {30: (), 70: ("DemurScoreShift", "DemurInputsOutOfRange", "DemurDrift")})


def test_labels_that_show_less_accuracy_than_expected(tmp_path: Path) -> None:
    """Half an hour with a label in fifty wrong, and then one in four."""

    def minute(number: int) -> None:
        wrong = number % 5 == 0 if number < 30 else 3
        service.label(service.ask(service.draw(10)), int(wrong))

    with served(GOLDEN / "v1" / "bundle", feedback_secret_file=str(secret_file(tmp_path))) as service:
        recording = service.record(60, minute)
    check_firing(tmp_path, recording, {30: (), 60: ("DemurAccuracy",)})


def test_requests_that_wait_past_the_operators_deadline(tmp_path: Path) -> None:
    def minute(_: int) -> None:
        for _ in range(5):
            service.ask(service.draw(1), 504)

    with served(request_timeout_seconds="0.000001") as service:
        recording = service.record(20, minute)
    budget = ("DemurFailureBudgetFastBurn", "DemurFailureBudgetMediumBurn")
    check_firing(tmp_path, recording, {3: (), 20: ("DemurDeadlineMisses", *budget)})


class Pausing(Predictor):
    """Takes long for one batch when it is told to, as on a machine that is busy with something else."""

    pause_seconds = 0.0

    def predict(self, inputs: Array) -> Prediction:
        seconds, self.pause_seconds = self.pause_seconds, 0.0
        time.sleep(seconds)
        return super().predict(inputs)


def test_requests_that_wait_long_for_a_worker(tmp_path: Path) -> None:
    """Once in five minutes, some wait for more than a second."""
    pausing = Pausing.load(BUNDLE)
    assert isinstance(pausing, Pausing)
    images = np.random.default_rng(0).permutation(digits())

    def minute(number: int) -> None:
        pausing.pause_seconds = 1.3 if number % 5 == 0 else 0.0
        bodies = [json.dumps({"inputs": images[(25 * number + i) % len(images)].tolist()}) for i in range(25)]
        waiting = [client.start("POST", "/predict", content=body) for body in bodies]
        assert [one.result(60).status_code for one in waiting] == [200] * 25

    with serving(pausing, Settings()) as client:
        recording = record(30, minute, lambda: client.get("/metrics").text)
    budget = ("DemurLatencyBudgetFastBurn", "DemurLatencyBudgetMediumBurn")
    check_firing(tmp_path, recording, {3: (), 30: ("DemurLatency", *budget)})


class Broken(Predictor):
    """Fails by a bug of its own."""

    def predict(self, inputs: object) -> Prediction:
        raise RuntimeError("a bug")


def test_a_service_that_fails(tmp_path: Path) -> None:
    with serving(Broken.load(BUNDLE)) as client:
        body = json.dumps({"inputs": digits()[0].tolist()})
        recording = record(20, lambda _: client.predict(body), lambda: client.get("/metrics").text)
    check_firing(tmp_path, recording, {4: (), 20: ("DemurErrorRatio", "DemurFailureBudgetFastBurn")})


def test_examples_that_wait_while_nothing_is_computed(tmp_path: Path) -> None:
    slow = Slow(read_bundle(BUNDLE))
    body = json.dumps({"inputs": digits()[0].tolist()})
    with serving(slow) as client:
        waiting = [client.start("POST", "/predict", content=body) for _ in range(40)]
        assert slow.entered.acquire(timeout=60)
        recording = record(20, lambda _: None, lambda: client.get("/metrics").text)
        slow.proceed.set()
        assert [one.result(60).status_code for one in waiting] == [200] * 40
    check_firing(tmp_path, recording, {3: (), 20: ("DemurQueueStuck",)})


def test_a_newer_bundle_that_is_refused(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_linear(models / "good", outputs=3, spec=FEATURE_SPEC, name="good")
    write_linear(models / "bad", outputs=3, spec=FEATURE_SPEC, seed=1, name="bad")
    (models / "bad" / MODEL).write_bytes(b"changed")
    with served(models / "good", models=str(models)) as service:
        recording = service.record(10, lambda _: None)
    check_firing(tmp_path, recording, {3: (), 10: ("DemurModelStale",)})


def test_an_instance_that_goes_and_one_that_never_was(tmp_path: Path) -> None:
    """Whatever the job is called; and as long as another job has a target, none of Demur's is missing."""
    with served() as service:
        recording = service.record(10, lambda _: None)
    for _ in range(20):
        recording.take(None)
    check_firing(tmp_path, recording, {10: (), 30: ("DemurTargetDown", "DemurTargetAbsent")})
    nothing = Recording()
    for _ in range(20):
        nothing.minutes.append({'up{job="another",instance="b:1"}': "1"})
    check_firing(tmp_path, nothing, {4: (), 10: ("DemurTargetAbsent",)})
