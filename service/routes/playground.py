"""A page to try the default model on, from files that the service serves itself.

The files are public, as they hold nothing of the model; what they ask for needs a key where other requests do.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse

from ..http.problems import ProblemError
from ..runtime import Runtime, get_runtime

router = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parent.parent / "playground"
PAGE = "index.html"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = frozenset(file.name for file in FOLDER.iterdir() if file.suffix in TYPES)
PUBLIC = frozenset({"/", *(f"/playground/{name}" for name in FILES)})
GET = ["GET", "HEAD"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MOST_SCORES = 2000


@router.api_route("/", methods=GET)
async def page() -> FileResponse:
    """The page, with relative addresses: a proxy may serve the service below a path of its own."""
    return _file(PAGE)


@router.api_route("/playground/reference", methods=GET)
async def reference(runtime: Annotated[Runtime, Depends(get_runtime)]) -> dict[str, list[float]]:
    """The scores with which the default model compares those of requests, ascending; of many, evenly spaced ones."""
    scores = runtime.store.find().predictor.decision.pooled.scores
    if len(scores) > MOST_SCORES:
        scores = scores[np.linspace(0, len(scores) - 1, MOST_SCORES).round().astype(np.int64)]
    return {"scores": scores.tolist()}


@router.api_route("/playground/{file}", methods=GET)
async def part(file: str) -> FileResponse:
    """A script, a style sheet or a picture of the page."""
    if file not in FILES:
        raise ProblemError(404, "not_found", f"Found {file!r:.80}, expected a file of the playground.")
    return _file(file)


def _file(name: str) -> FileResponse:
    return FileResponse(FOLDER / name, media_type=TYPES[Path(name).suffix], headers={"Content-Security-Policy": POLICY})
