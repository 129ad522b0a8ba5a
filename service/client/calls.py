"""Requests and the readers of their answers, one function for each method of the clients. Nothing is sent here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter

from ..schemas import FeedbackRequest, FeedbackResponse, Health, ModelList, ModelVersion, PredictResponse
from .answers import Answer, error_of, excerpt
from .encoding import File as File
from .encoding import Inputs as Inputs
from .encoding import encode_files, encode_inputs
from .errors import UnexpectedAnswerError

TIMEOUT_HEADER = "X-Request-Timeout"
T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and the reader of its answer's body for each expected status; other statuses are refusals."""

    method: str
    path: str
    readers: Mapping[int, Callable[[bytes], T]]
    content: bytes | None = None
    media_type: str | None = None

    def headers(self, seconds: float) -> dict[str, str]:
        """The headers of an attempt that may take `seconds`."""
        kind = {"Content-Type": self.media_type} if self.media_type else {}
        return {TIMEOUT_HEADER: f"{seconds:.6g}", **kind}

    def result(self, answer: Answer, now: float) -> T:
        """The parsed answer, or raises its `DemurError`."""
        reader = self.readers.get(answer.status)
        if reader is None:
            raise error_of(answer, now)
        try:
            return reader(answer.body)
        except ValueError as error:
            reason = f"it does not match the schema; it begins {excerpt(answer.body)}"
            raise UnexpectedAnswerError(answer.status, reason) from error


class Asked(TypedDict, total=False):
    """Of which model a prediction is asked, and how; what is left out, or None, is as the service has it.

    * `model`, `version`: of these; otherwise of the default model, and the version that answers.
    * `false_reject_rate`: the share of in-distribution inputs that may be rejected, where the operator lets requests
      choose it.
    * `detail`: "full" for every field, of all classes.
    * `top`: of how many classes, the most probable first.
    """

    model: str | None
    version: str | None
    false_reject_rate: float | None
    detail: Literal["full"] | None
    top: int | None


def predict_path(
    model: str | None = None,
    version: str | None = None,
    false_reject_rate: float | None = None,
    detail: str | None = None,
    top: int | None = None,
) -> str:
    """The path with its query, of what is `Asked`."""
    asked = {"false_reject_rate": false_reject_rate, "detail": detail, "top": top}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    return f"{_model_path(model, version)}/predict{'?' if query else ''}{query}"


def predict_call(inputs: Inputs, asked: Asked) -> Call[PredictResponse]:
    """Predictions for an array or lists."""
    return _predict(predict_path(**asked), encode_inputs(inputs))


def images_call(files: File | Iterable[File], asked: Asked) -> Call[PredictResponse]:
    """Predictions for image files; reads them."""
    return _predict(predict_path(**asked), encode_files(files))


def _predict(path: str, body: tuple[bytes, str]) -> Call[PredictResponse]:
    return Call("POST", path, {200: PredictResponse.model_validate_json}, *body)


def feedback_call(
    answer: PredictResponse | str,
    labels: Sequence[str | int | Sequence[str | int] | None] | None,
    values: Sequence[float | Sequence[float] | None] | None,
) -> Call[FeedbackResponse]:
    """Labels of an earlier answer's examples; `ValueError` for an answer without a receipt, and unless either labels or
    values are given."""
    receipt = answer if isinstance(answer, str) else answer.receipt
    if receipt is None:
        raise ValueError("answer: found no receipt, expected one: the operator sets DEMUR_FEEDBACK_SECRET_FILE")
    if (labels is None) == (values is None):
        found = "none" if labels is None else "both"
        raise ValueError(f"feedback: found {found}, expected labels of a classification, or values of a regression")
    body = FeedbackRequest(receipt=receipt, labels=_listed(labels), values=_listed(values))
    content = body.model_dump_json(exclude_none=True).encode()
    return Call("POST", "/feedback", {200: FeedbackResponse.model_validate_json}, content, "application/json")


def _listed(truths: Sequence[Any] | None) -> list[Any] | None:
    """As lists of Python's own values, which JSON has too; the truths may be arrays."""
    return None if truths is None else [one.tolist() if hasattr(one, "tolist") else one for one in truths]


def card_call(model: str | None, version: str | None) -> Call[dict[str, Any]]:
    """A model's card."""
    return Call("GET", _model_path(model, version) or "/model", {200: TypeAdapter(dict[str, Any]).validate_json})


def models_call() -> Call[list[ModelVersion]]:
    """The models that are loaded."""
    return Call("GET", "/models", {200: lambda body: ModelList.model_validate_json(body).models})


def health_call(state: str) -> Call[bool]:
    """Whether the service is "live" or "ready"; 503 is an answer here, not a refusal."""
    return Call("GET", f"/health/{state}", {200: lambda body: _health(body, state), 503: lambda _: False})


def _health(body: bytes, state: str) -> bool:
    found = Health.model_validate_json(body).status
    if found != state:
        raise ValueError(f"found the status {found!r}, expected {state!r}")
    return True


def metrics_call() -> Call[str]:
    """The metrics, as Prometheus reads them."""
    return Call("GET", "/metrics", {200: bytes.decode})


def _model_path(model: str | None, version: str | None) -> str:
    """The model's path, empty for the default model; `ValueError` for names that would lead elsewhere."""
    if model is None:
        if version is not None:
            raise ValueError("version: found one without a model, expected both, or a model alone")
        return ""
    path = f"/models/{_segment('model', model)}"
    return path if version is None else f"{path}/versions/{_segment('version', version)}"


def _segment(what: str, name: str) -> str:
    """The name as one segment of a path."""
    if name in ("", ".", ".."):
        raise ValueError(f"{what}: found {name!r}, expected a name")
    return quote(name, safe="")
