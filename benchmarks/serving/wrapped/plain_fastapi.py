"""FastAPI without batching: `def` endpoints run in its thread pool."""

from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.serving.wrapped.common import PORT, WORKERS, answers, example, load

app = FastAPI()
predictor = load()


class Digit(BaseModel):
    """One example (1, 8, 8)."""

    inputs: list[list[list[float]]]


@app.post("/predict")
def predict(digit: Digit) -> dict[str, Any]:
    return answers(predictor.predict(example(digit.inputs)[None]))[0]


if __name__ == "__main__":
    uvicorn.run("benchmarks.serving.wrapped.plain_fastapi:app", port=PORT, workers=WORKERS, access_log=False)
