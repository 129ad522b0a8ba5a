"""LitServe: batches of at most 64, gathered for at most 2 ms."""

from typing import Any

import litserve
import numpy as np

from benchmarks.serving.wrapped.common import PORT, WORKERS, Array, answers, example, load
from benchmarks.serving.wrapped.settings import BATCH, DELAY_SECONDS
from demur.service.inference.predictor import Prediction


class Digits(litserve.LitAPI):
    """Each request holds one example."""

    def setup(self, device: str) -> None:
        del device
        self.predictor = load()

    def decode_request(self, request: dict[str, Any]) -> Array:
        return example(request["inputs"])

    def batch(self, inputs: list[Array]) -> Array:
        return np.stack(inputs)

    def predict(self, inputs: Array) -> Prediction:
        return self.predictor.predict(inputs)

    def unbatch(self, output: Prediction) -> list[dict[str, Any]]:
        return answers(output)

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return output


if __name__ == "__main__":
    api = Digits(max_batch_size=BATCH, batch_timeout=DELAY_SECONDS)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=WORKERS)
    server.run(host="127.0.0.1", port=PORT, num_api_servers=1, generate_client_file=False, log_level="warning")
