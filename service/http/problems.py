"""RFC 9457 problem details: the form of every error response. `demur.service.http.errors` maps exceptions to them."""

import json
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import Response

from ..schemas import Problem

CLIENT_GONE = 499  # the client left before an answer was begun (nginx's number)
MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """Raised by a route to answer the request with this problem."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **where: str | None
    ) -> None:
        super().__init__(detail)
        self.problem, self.headers = make_problem(status, code, detail, **where), dict(headers or {})


def make_problem(status: int, code: str, detail: str, **where: str | None) -> Problem:
    """A problem titled with the status's phrase; `where` may hold field, found and expected."""
    title = "Client Closed Request" if status == CLIENT_GONE else HTTPStatus(status).phrase
    return Problem.model_validate({"title": title, "status": status, "detail": detail, "code": code, **where})


def render(path: str, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem in the form that clients of `path` expect: under `/v2`, a JSON object with `error`."""
    body, media_type = problem.model_dump_json(exclude_none=True), MEDIA_TYPE
    if path == "/v2" or path.startswith("/v2/"):
        body, media_type = json.dumps({"error": problem.detail}), "application/json"
    return Response(body, status_code=problem.status, media_type=media_type, headers=headers)
