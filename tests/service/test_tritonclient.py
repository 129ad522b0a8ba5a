"""The real service, asked by the real tritonclient: both its clients, every datatype, JSON and binary."""

import asyncio
import base64
import contextlib
import gc
import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.bundles import Synthetic
from tests.support.outcomes import keeping_outcomes
from tests.support.requests import image_file
from tests.support.server import Server, running

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's own, of gevent and of its packaging
    import tritonclient.http as triton
    import tritonclient.http.aio as triton_aio
    from tritonclient.utils import InferenceServerException

Array = npt.NDArray[Any]
MODEL = "synthetic"
NUMBERS = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": np.float32,
}
VALUES = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [0, 1, 0, 1]], np.float32)
LEVEL = 0.9
NAMES = ["probabilities", "map_probabilities", "mean", "variance", "score", "p_value", "rejected"]
Ask = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def cheap_collections() -> Iterator[None]:
    """`ask_aio` collects garbage: it need not look through all that was there before, torch among it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def server(classification: Synthetic) -> Iterator[Server]:
    with running(classification.path) as started:
        yield started


@pytest.fixture(scope="module")
def image_server(images: Synthetic) -> Iterator[Server]:
    with running(images.path) as started:
        yield started


@dataclass(frozen=True)
class Kept:
    """Services of bundles with outcomes, a classification's and a regression's."""

    classes: Server
    values: Server


@pytest.fixture(scope="module")
def kept(classification: Synthetic, regression: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    paths = [keeping_outcomes(one.path, folder / one.path.name) for one in (classification, regression)]
    with contextlib.ExitStack() as stack:
        level = {"DEMUR_INTERVAL_LEVEL": str(LEVEL)}
        yield Kept(*(stack.enter_context(running(path, **level)) for path in paths))


def native(server: Server, values: Array) -> list[dict[str, Any]]:
    """The predictions that the service's own API gives."""
    body = json.dumps({"inputs": values.tolist()}).encode()
    status, _, answer = server.request("POST", "/predict", body, {"content-type": "application/json"})
    assert status == 200
    found: list[dict[str, Any]] = json.loads(answer)["predictions"]
    return found


def ask(server: Server, method: str, *arguments: Any, **options: Any) -> Any:
    """One call by the synchronous client."""
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    with contextlib.closing(client):
        return getattr(client, method)(*arguments, **options)


def ask_aio(server: Server, method: str, *arguments: Any, **options: Any) -> Any:
    """One call by the client for asyncio."""

    async def call() -> Any:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            answer: Awaitable[Any] = getattr(client, method)(*arguments, **options)
            return await answer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it never reads the answers of its `is_...`
        try:
            return asyncio.run(call())
        finally:
            gc.collect()


both = pytest.mark.parametrize("asking", [ask, ask_aio], ids=["sync", "aio"])


def tensor(values: Array = VALUES, datatype: str = "FP32", binary: bool = True) -> Any:
    made = triton.InferInput("inputs", list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def wanted(binary: bool, *names: str) -> list[Any]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def mean_of(synthetic: Synthetic, values: Array = VALUES) -> Array:
    return synthetic.mean(values).astype(np.float32)


def refusal(asking: Ask, server: Server, status: int, *arguments: Any, **options: Any) -> str:
    """The text of the exception that the client raises."""
    with pytest.raises(InferenceServerException) as caught:
        asking(server, *arguments, **options)
    assert caught.value.status() == str(status)
    message: str = caught.value.message()
    assert "exception occurred in the client" not in message
    return message


@both
def test_health_and_metadata(server: Server, asking: Ask) -> None:
    assert asking(server, "is_server_live") is True
    assert asking(server, "is_server_ready") is True
    assert asking(server, "is_model_ready", MODEL) is True
    assert asking(server, "is_model_ready", MODEL, "1") is True
    assert asking(server, "is_model_ready", "no") is False
    assert asking(server, "get_server_metadata")["extensions"] == ["binary_tensor_data"]
    metadata = asking(server, "get_model_metadata", MODEL, "1")
    assert metadata["inputs"] == [{"name": "inputs", "datatype": "FP32", "shape": [-1, 4]}]
    assert [output["name"] for output in metadata["outputs"]] == [*NAMES, "prediction_set"]


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_every_number(server: Server, classification: Synthetic, asking: Ask, datatype: str, binary: bool) -> None:
    if datatype == "BF16" and not binary:
        pytest.skip("the client itself sends BF16 in binary only")
    values = VALUES.astype(NUMBERS[datatype])
    outputs = wanted(binary, "mean", "rejected")
    result = asking(server, "infer", MODEL, [tensor(values, datatype, binary)], outputs=outputs)
    np.testing.assert_allclose(result.as_numpy("mean"), mean_of(classification), rtol=1e-5)
    assert result.as_numpy("rejected").dtype == np.bool_


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_booleans_are_no_numbers(server: Server, asking: Ask, binary: bool) -> None:
    given = tensor(VALUES > 2, "BOOL", binary)
    assert "bool" in refusal(asking, server, 422, "infer", MODEL, [given])


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_all_outputs_and_chosen_ones(server: Server, asking: Ask, binary: bool) -> None:
    result = asking(server, "infer", MODEL, [tensor(binary=binary)], request_id="my id")
    response = result.get_response()
    assert [output["name"] for output in response["outputs"]] == NAMES
    assert response["id"] == "my id"
    np.testing.assert_allclose(result.as_numpy("probabilities").sum(axis=1), 1, rtol=1e-5)
    assert result.as_numpy("score").shape == result.as_numpy("p_value").shape == (3,)
    chosen = asking(server, "infer", MODEL, [tensor()], "1", outputs=wanted(binary, "score", "mean"))
    assert [output["name"] for output in chosen.get_response()["outputs"]] == ["score", "mean"]
    np.testing.assert_array_equal(chosen.as_numpy("score"), result.as_numpy("score"))
    assert chosen.as_numpy("variance") is None


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("answer", [None, "gzip", "deflate"])
@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
def test_compression(
    server: Server, classification: Synthetic, asking: Ask, request_coding: str | None, answer: str | None, binary: bool
) -> None:
    result = asking(
        server,
        "infer",
        MODEL,
        [tensor(binary=binary)],
        outputs=wanted(binary, "mean", "score"),
        request_compression_algorithm=request_coding,
        response_compression_algorithm=answer,
    )
    np.testing.assert_allclose(result.as_numpy("mean"), mean_of(classification), rtol=1e-5)


@both
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_image_files(image_server: Server, asking: Ask, shape: tuple[int, ...]) -> None:
    files = np.array([image_file(), image_file("JPEG")], np.object_).reshape(shape)
    result = asking(image_server, "infer", MODEL, [tensor(files, "BYTES")])
    native = image_server.request("POST", "/predict", image_file(), {"content-type": "image/png"})
    assert native[0] == 200
    assert result.as_numpy("probabilities").shape == (2, 3)
    message = refusal(
        asking, image_server, 422, "infer", MODEL, [tensor(np.array([image_file(), b"x"], np.object_), "BYTES")]
    )
    assert message.startswith("inputs[1]: found bytes that are not an image")


@both
def test_image_files_in_json(image_server: Server, asking: Ask) -> None:
    texts = np.array([base64.b64encode(image_file())], np.object_)
    result = asking(image_server, "infer", MODEL, [tensor(texts, "BYTES", binary=False)])
    assert result.as_numpy("mean").shape == (1, 3)


@both
def test_refusals_reach_the_client_as_text(server: Server, asking: Ask) -> None:
    assert "'no' is not loaded" in refusal(asking, server, 404, "infer", "no", [tensor()])
    assert "'9'" in refusal(asking, server, 404, "get_model_metadata", MODEL, "9")
    wrong = tensor(np.ones((2, 5), np.float32))
    assert "shape (2, 5)" in refusal(asking, server, 422, "infer", MODEL, [wrong])
    assert "not finite" in refusal(asking, server, 422, "infer", MODEL, [tensor(np.full((1, 4), 3e38, np.float32))])
    assert "nan" in refusal(asking, server, 422, "infer", MODEL, [tensor(np.full((1, 4), np.nan, np.float32))])
    assert "'logits'" in refusal(asking, server, 422, "infer", MODEL, [tensor()], outputs=wanted(True, "logits"))
    ranked = [triton.InferRequestedOutput("mean", class_count=2)]
    assert "classification" in refusal(asking, server, 422, "infer", MODEL, [tensor()], outputs=ranked)
    many = tensor(np.ones((1025, 4), np.float32))
    assert "at most 1024" in refusal(asking, server, 413, "infer", MODEL, [many])
    shared = triton.InferInput("inputs", [3, 4], "FP32")
    shared.set_shared_memory("region", 48)
    assert "shared memory" in refusal(asking, server, 422, "infer", MODEL, [shared])
    for call in ("get_trace_settings", "get_model_repository_index", "get_inference_statistics"):
        assert refusal(asking, server, 404, call)


@both
def test_the_timeout_is_in_microseconds(server: Server, asking: Ask) -> None:
    assert "eadline" in refusal(asking, server, 504, "infer", MODEL, [tensor()], timeout=1)
    assert asking(server, "infer", MODEL, [tensor()], timeout=20_000_000).as_numpy("mean") is not None


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_prediction_sets_are_sent_where_they_are_asked_for(kept: Kept, asking: Ask, binary: bool) -> None:
    values = VALUES / 8  # for which several classes are likely
    metadata = asking(kept.classes, "get_model_metadata", MODEL)
    assert metadata["outputs"][-1] == {"name": "prediction_set", "datatype": "BOOL", "shape": [-1, 3]}
    assert metadata["parameters"]["interval_level"] == LEVEL
    plain = asking(kept.classes, "infer", MODEL, [tensor(values)])
    assert [output["name"] for output in plain.get_response()["outputs"]] == NAMES
    result = asking(
        kept.classes, "infer", MODEL, [tensor(values)], outputs=wanted(binary, "prediction_set", "probabilities")
    )
    members = result.as_numpy("prediction_set")
    assert (members.dtype, members.shape) == (np.bool_, (3, 3))
    for member, one in zip(members, native(kept.classes, values), strict=True):
        assert {f"class {k}" for k in np.flatnonzero(member)} == set(one["prediction_set"]["labels"])
    assert members.sum() > len(members)


@both
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_intervals_are_sent_where_they_are_asked_for(kept: Kept, asking: Ask, binary: bool) -> None:
    values = VALUES[:, :3]
    metadata = asking(kept.values, "get_model_metadata", MODEL)
    ends = ["interval_low", "interval_high"]
    assert metadata["outputs"][-2:] == [{"name": name, "datatype": "FP64", "shape": [-1, 2]} for name in ends]
    assert metadata["parameters"]["interval_level"] == LEVEL
    assert metadata["parameters"]["intervals"] == "conformal"
    plain = asking(kept.values, "infer", MODEL, [tensor(values)])
    assert [output["name"] for output in plain.get_response()["outputs"]] == NAMES[2:]
    result = asking(kept.values, "infer", MODEL, [tensor(values)], outputs=wanted(binary, *ends))
    for i, one in enumerate(native(kept.values, values)):
        assert one["interval"]["kind"] == "conformal"
        for name in ("low", "high"):
            np.testing.assert_allclose(result.as_numpy(f"interval_{name}")[i], one["interval"][name], rtol=1e-5)


@both
def test_a_regression(regression: Synthetic, asking: Ask) -> None:
    with running(Path(regression.path)) as server:
        result = asking(server, "infer", MODEL, [tensor(VALUES[:, :3])])
        assert [output["name"] for output in result.get_response()["outputs"]] == NAMES[2:]
        np.testing.assert_allclose(result.as_numpy("mean"), mean_of(regression, VALUES[:, :3]), rtol=1e-5)
        np.testing.assert_allclose(result.as_numpy("variance"), regression.variance(VALUES[:, :3]), rtol=1e-3)
