"""FastAPI around the plain network in onnxruntime, without uncertainty and without batching."""

from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.core.plain import plain_network
from benchmarks.serving.wrapped.common import BUNDLE, PORT, THREADS, load
from demur.service.maths.predictive import softmax

app = FastAPI()
predictor, mean = load(), plain_network(BUNDLE, THREADS)


class Digits(BaseModel):
    """Some examples (1, 8, 8)."""

    inputs: list[list[list[list[float]]]]


@app.post("/predict")
def predict(digits: Digits) -> list[dict[str, Any]]:
    probabilities = softmax(mean(np.asarray(digits.inputs, np.float32)))
    names = predictor.manifest.labels
    return [
        {"label": names[int(row.argmax())], "probabilities": dict(zip(names, row.tolist(), strict=True))}
        for row in probabilities
    ]


if __name__ == "__main__":
    uvicorn.run("benchmarks.serving.wrapped.plain_network:app", port=PORT)
