"""OpenAPI descriptions of the errors under /v2: the statuses of the native API in the protocol's form."""

from typing import Any

from ..oip.schemas import ErrorResponse

TEXTS: dict[int | str, str] = {
    400: "The body is not JSON, or not in its content encoding.",
    401: "An API key is needed.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    413: "The body, an image or the batch is over a limit.",
    415: "The body is of another media type or content encoding.",
    422: "A field is missing, or holds a value the model cannot take.",
    429: "The queue or the memory for requests is full; try again after `Retry-After` seconds.",
    500: "The service failed.",
    503: "Shutting down, or not able to compute.",
    504: "The deadline passed before the answer was ready.",
    "default": "Any other refusal.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These errors, and a default for any other."""
    kept: tuple[int | str, ...] = (*statuses, "default")
    return {status: {"model": ErrorResponse, "description": TEXTS[status]} for status in kept}


ALL_ERRORS = errors(*(status for status in TEXTS if isinstance(status, int)))
