"""tritonclient, over HTTP and gRPC."""

from functools import partial
from typing import Any

import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from benchmarks.serving.clients.common import TYPES, Notes, arguments, values


def ask(client: Any, kind: Any, model: str, datatype: str, **layout: Any) -> Any:
    """The means."""
    given = kind.InferInput("inputs", [3, 4], datatype)
    given.set_data_from_numpy(values(datatype), **layout)
    outputs = [kind.InferRequestedOutput("mean", **layout)]
    return client.infer(model, [given], outputs=outputs).as_numpy("mean")


def is_expected(notes: Notes, client: Any, kind: Any, model: str, datatype: str, options: dict[str, bool]) -> bool:
    """Whether the means are the predictor's."""
    return notes.is_expected(ask(client, kind, model, datatype, **options))


def try_all(name: str, client: Any, kind: Any, layouts: dict[str, dict[str, bool]], model: str, notes: Notes) -> None:
    notes.attempt(name, "live", client.is_server_live)
    notes.attempt(name, "ready", client.is_server_ready)
    notes.attempt(name, "model ready", lambda: bool(client.is_model_ready(model)))
    notes.attempt(name, "unknown model not ready", lambda: not client.is_model_ready("nobody"))
    notes.attempt(name, "metadata", lambda: "inputs" in str(client.get_model_metadata(model)))
    for datatype in TYPES:
        for layout, options in layouts.items():
            if datatype == "FP16" and layout == "JSON":  # the client itself refuses it
                continue
            notes.attempt(
                name,
                f"infer {datatype}, {layout}",
                partial(is_expected, notes, client, kind, model, datatype, options),
            )
    notes.attempt(name, "error: unknown model", lambda: raises(client, kind, "nobody", "FP32", "not loaded"))
    notes.attempt(name, "error: wrong shape", lambda: raises(client, kind, model, "FP32", "shape", shape=[4, 3]))


def raises(client: Any, kind: Any, model: str, datatype: str, words: str, shape: Any = None) -> bool:
    """Whether the client's own error has these words."""
    given = kind.InferInput("inputs", shape or [3, 4], datatype)
    given.set_data_from_numpy(values(datatype).reshape(shape or [3, 4]))
    try:
        client.infer(model, [given])
    except InferenceServerException as error:
        return words in str(error)
    return False


def main() -> None:
    http, rpc, model, notes = arguments()
    with tritonclient.http.InferenceServerClient(http) as client:
        layouts = {"binary": {"binary_data": True}, "JSON": {"binary_data": False}}
        try_all("tritonclient HTTP", client, tritonclient.http, layouts, model, notes)
    with tritonclient.grpc.InferenceServerClient(rpc) as client:
        try_all("tritonclient gRPC", client, tritonclient.grpc, {"raw": {}}, model, notes)
    notes.end()


if __name__ == "__main__":
    main()
