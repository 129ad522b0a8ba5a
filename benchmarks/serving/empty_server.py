"""A FastAPI route that reads a request, computes nothing, and answers with as many bytes as the service does.

    python -m benchmarks.serving.empty_server PORT '{"LENGTH OF THE REQUEST": LENGTH OF THE ANSWER, ...}'

It runs under uvicorn's own HTTP protocol with the service's settings.
"""

import json
import sys

import uvicorn
from fastapi import FastAPI, Request, Response

from benchmarks.serving.digits import INFER, OCTETS
from demur.service.process.server import uvicorn_options
from demur.service.settings import Settings


def main(port: str, lengths: str) -> None:
    answers = {int(length): bytes(size) for length, size in json.loads(lengths).items()}
    app = FastAPI(openapi_url=None)

    @app.post(INFER)
    async def infer(request: Request) -> Response:
        return Response(answers[len(await request.body())], media_type=OCTETS)

    uvicorn.run(app, **uvicorn_options(Settings(port=int(port))))


if __name__ == "__main__":
    main(*sys.argv[1:])
