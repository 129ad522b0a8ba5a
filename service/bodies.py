"""Reading a request body within limits, before anything is parsed."""

from fastapi import Request

from service.problems import ProblemError

# A client that is still sending sees the answer only after its body was taken in. So the rest of a body that is
# too large is read and thrown away, up to this multiple of the limit; beyond it the connection is closed.
DRAIN_FACTOR = 16


async def read_json_body(request: Request, limit: int) -> bytes:
    """The body of a JSON request; refuses other media types (415) and bodies over `limit` bytes (413)."""
    _check_media_type(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > DRAIN_FACTOR * limit:
        raise _too_large(limit)
    kept = bytearray()
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received <= limit:
            kept += chunk
        else:
            kept.clear()
            if received > DRAIN_FACTOR * limit:
                break
    if received > limit:
        raise _too_large(limit)
    return bytes(kept)


def _too_large(limit: int) -> ProblemError:
    detail = f"The body is larger than {limit} bytes."
    return ProblemError(413, "body_too_large", detail, expected=f"at most {limit} bytes")


def _check_media_type(request: Request) -> None:
    header = request.headers.get("content-type", "application/json")
    media_type = header.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ProblemError(
            415,
            "media_type",
            f"Found the media type {media_type!r:.100}, expected 'application/json'; send -H 'Content-Type: "
            "application/json'.",
            field="Content-Type",
            found=media_type[:100],
            expected="application/json",
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise ProblemError(
            415,
            "content_encoding",
            f"Found the content encoding {encoding!r:.100}, expected an uncompressed body.",
            field="Content-Encoding",
            found=encoding[:100],
            expected="identity",
        )
