"""kserve's clients, REST and gRPC."""

import asyncio
import logging
from typing import Any

from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

from benchmarks.serving.clients.common import TYPES, Notes, arguments, values

LAYOUTS = {"raw": True, "typed": False}


def request(model: str, datatype: str, raw: bool, shape: Any = (3, 4)) -> InferRequest:
    """One tensor."""
    given = InferInput(name="inputs", shape=list(shape), datatype=datatype)
    given.set_data_from_numpy(values(datatype).reshape(shape), binary_data=raw)
    return InferRequest(model_name=model, infer_inputs=[given])


async def note(notes: Notes, client: str, what: str, act: Any) -> None:
    """As `Notes.attempt`, of what is awaited."""
    try:
        notes.note(client, what, "ok" if await act else "another answer")
    except Exception as error:
        notes.note(client, what, notes.told(error))


async def mean_is_expected(notes: Notes, asked: Any) -> bool:
    """Whether the means are the predictor's."""
    found = {output.name: output for output in (await asked).outputs}
    return notes.is_expected(found["mean"].as_numpy())


async def raises(asked: Any, words: str) -> bool:
    """Whether an error has these words."""
    try:
        await asked
    except Exception as error:
        return words in str(error)
    return False


async def main() -> None:
    http, rpc, model, notes = arguments()
    base, rest = f"http://{http}", InferenceRESTClient(RESTConfig(protocol="v2"))
    name = "kserve REST"
    await note(notes, name, "live", rest.is_server_live(base))
    await note(notes, name, "ready", rest.is_server_ready(base))
    await note(notes, name, "model ready", rest.is_model_ready(base, model))
    grpc = InferenceGRPCClient(rpc)
    for kind, what in (("live", grpc.is_server_live()), ("ready", grpc.is_server_ready())):
        await note(notes, "kserve gRPC", kind, what)
    await note(notes, "kserve gRPC", "model ready", grpc.is_model_ready(model))
    for datatype in TYPES:
        for layout, raw in LAYOUTS.items():
            if datatype == "FP16" and not raw:  # the client itself refuses it
                continue
            what = f"infer {datatype}, {layout}"
            asked = rest.infer(base, request(model, datatype, raw), model_name=model)
            await note(notes, name, what, mean_is_expected(notes, asked))
            asked = grpc.infer(request(model, datatype, raw))
            await note(notes, "kserve gRPC", what, mean_is_expected(notes, asked))
    unknown, wrong = request("nobody", "FP32", True), request(model, "FP32", True, (4, 3))
    clients = {name: lambda one: rest.infer(base, one, model_name=one.model_name), "kserve gRPC": grpc.infer}
    for client, ask in clients.items():
        await note(notes, client, "error: unknown model", raises(ask(unknown), "not loaded"))
        await note(notes, client, "error: wrong shape", raises(ask(wrong), "shape"))
    await grpc.close()
    await rest.close()
    notes.end()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
