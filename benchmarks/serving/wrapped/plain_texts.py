"""FastAPI around the plain network and its tokenizer, without uncertainty and without batching."""

from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.core.plain import plain_network
from benchmarks.serving.wrapped.common import BUNDLE, PORT, THREADS, load
from demur.service.maths.predictive import softmax

app = FastAPI()
predictor, mean = load(), plain_network(BUNDLE, THREADS)


class Texts(BaseModel):
    """Some texts."""

    texts: list[str]


@app.post("/predict")
def predict(asked: Texts) -> list[dict[str, Any]]:
    assert predictor.reader is not None
    inputs = predictor.reader.read(asked.texts, "texts").array(predictor.manifest.input)
    probabilities = softmax(mean(inputs))
    names = predictor.manifest.labels
    return [
        {"label": names[int(row.argmax())], "probabilities": dict(zip(names, row.tolist(), strict=True))}
        for row in probabilities
    ]


if __name__ == "__main__":
    uvicorn.run("benchmarks.serving.wrapped.plain_texts:app", port=PORT, access_log=False)
