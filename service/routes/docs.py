"""The page that shows the API and lets one try it: Swagger UI, whose files the service serves itself.

FastAPI's own page loads them from a public network, so that it stays blank without one, and a stranger's script runs
in it. Here a content policy allows what this service serves, and nothing else.
"""

import base64
import hashlib
import re
from enum import StrEnum
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

router = APIRouter(include_in_schema=False)
FILES = Path(fastapi_offline.__file__).parent / "static"
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class Asset(StrEnum):
    """The files that the page needs."""

    SCRIPT = "swagger-ui-bundle.js"
    STYLE = "swagger-ui.css"
    ICON = "favicon.png"


@router.get("/docs")
async def docs() -> HTMLResponse:
    """The page. Its addresses are relative: a proxy may serve all of this below a path of its own."""
    page = get_swagger_ui_html(
        openapi_url="./openapi.json",
        title="Probity",
        swagger_js_url=f"./docs/{Asset.SCRIPT}",
        swagger_css_url=f"./docs/{Asset.STYLE}",
        swagger_favicon_url=f"./docs/{Asset.ICON}",
    )
    page.headers["Content-Security-Policy"] = _policy(bytes(page.body).decode())
    return page


@router.get(f"/docs/{Asset.SCRIPT}")
async def script() -> FileResponse:
    """Swagger UI."""
    return _file(Asset.SCRIPT)


@router.get(f"/docs/{Asset.STYLE}")
async def style() -> FileResponse:
    """How it looks."""
    return _file(Asset.STYLE)


@router.get(f"/docs/{Asset.ICON}")
async def icon() -> FileResponse:
    """What a browser's tab shows."""
    return _file(Asset.ICON)


def _file(asset: Asset) -> FileResponse:
    return FileResponse(FILES / asset, headers={"Cache-Control": "public, max-age=3600"})


def _policy(html: str) -> str:
    """Scripts of this service, and the one in the page that starts them; styles and small images that these set."""
    digests = (hashlib.sha256(script.encode()).digest() for script in INLINE_SCRIPT.findall(html))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
