"""RFC 9457 problem details: how a refusal looks. The mapping from errors to these stands in `service.web.refusals`."""

import json
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import Response

from service.schemas import Problem

MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """Raised by a route to refuse a request with this problem."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **where: str | None
    ) -> None:
        super().__init__(detail)
        self.problem, self.headers = make_problem(status, code, detail, **where), dict(headers or {})


def make_problem(status: int, code: str, detail: str, **where: str | None) -> Problem:
    """`where` may hold field, found and expected."""
    title = HTTPStatus(status).phrase
    return Problem.model_validate({"title": title, "status": status, "detail": detail, "code": code, **where})


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as an `application/problem+json` response."""
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def render(path: str, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The refusal in the form that clients of this path understand: under `/v2` an object with `error`."""
    if path != "/v2" and not path.startswith("/v2/"):
        return problem_response(problem, headers)
    body = json.dumps({"error": problem.detail})
    return Response(body, status_code=problem.status, media_type="application/json", headers=headers)
