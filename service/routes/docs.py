"""The OpenAPI document, and Swagger UI to read and try it, from files that the service serves itself.

FastAPI's own page loads Swagger UI from a public network: it stays blank without one, and runs a third party's script.
Here a content policy allows only what this service serves.
"""

import base64
import hashlib
import re
from enum import StrEnum
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse

router = APIRouter(include_in_schema=False)
FILES = Path(fastapi_offline.__file__).parent / "static"
GET = ["GET", "HEAD"]
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class Asset(StrEnum):
    """The files that the page needs."""

    SCRIPT = "swagger-ui-bundle.js"
    STYLE = "swagger-ui.css"
    ICON = "favicon.png"


@router.api_route("/openapi.json", methods=GET)
async def openapi(request: Request) -> Response:
    """The OpenAPI document, rendered at the first request."""
    state = request.app.state
    if not hasattr(state, "openapi_json"):
        state.openapi_json = JSONResponse(request.app.openapi()).body
    return Response(state.openapi_json, media_type="application/json")


@router.api_route("/docs", methods=GET)
async def docs() -> HTMLResponse:
    """The page, with relative addresses: a proxy may serve the service below a path of its own."""
    page = get_swagger_ui_html(
        openapi_url="./openapi.json",
        title="Demur",
        swagger_js_url=f"./docs/{Asset.SCRIPT}",
        swagger_css_url=f"./docs/{Asset.STYLE}",
        swagger_favicon_url=f"./docs/{Asset.ICON}",
    )
    page.headers["Content-Security-Policy"] = _policy(bytes(page.body).decode())
    return page


@router.api_route(f"/docs/{Asset.SCRIPT}", methods=GET)
async def script() -> FileResponse:
    """Swagger UI's script."""
    return _file(Asset.SCRIPT)


@router.api_route(f"/docs/{Asset.STYLE}", methods=GET)
async def style() -> FileResponse:
    """Swagger UI's style sheet."""
    return _file(Asset.STYLE)


@router.api_route(f"/docs/{Asset.ICON}", methods=GET)
async def icon() -> FileResponse:
    """The page's icon."""
    return _file(Asset.ICON)


def _file(asset: Asset) -> FileResponse:
    return FileResponse(FILES / asset, headers={"Cache-Control": "public, max-age=3600"})


def _policy(html: str) -> str:
    """The content policy: scripts of this service, the page's own inline script, and the styles and images they set."""
    digests = (hashlib.sha256(script.encode()).digest() for script in INLINE_SCRIPT.findall(html))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
