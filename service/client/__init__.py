"""A typed client of the native API, over httpx: `pip install '.[client]'`.

>>> from demur.service.client import Client
>>> with Client("http://127.0.0.1:8000") as client:
...     answer = client.predict([[0.5, -1.0, 2.0, 0.25]])

`AsyncClient` has the same methods as coroutines. Every failure is a `DemurError`; there is a subclass for each way to
react.
"""

from ..schemas import (
    ClassificationPrediction,
    FeedbackResponse,
    ModelVersion,
    PredictResponse,
    Problem,
    RegressionPrediction,
)
from .aio import AsyncClient
from .calls import Asked, File, Inputs
from .errors import (
    BadRequestError,
    ConnectionFailedError,
    DeadlineError,
    DemurError,
    NotFoundError,
    RefusedError,
    ServerError,
    TimedOutError,
    TooBusyError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from .retrying import Clocks
from .sync import Client

__all__ = [
    "Asked",
    "AsyncClient",
    "BadRequestError",
    "ClassificationPrediction",
    "Client",
    "Clocks",
    "ConnectionFailedError",
    "DeadlineError",
    "DemurError",
    "FeedbackResponse",
    "File",
    "Inputs",
    "ModelVersion",
    "NotFoundError",
    "PredictResponse",
    "Problem",
    "RefusedError",
    "RegressionPrediction",
    "ServerError",
    "TimedOutError",
    "TooBusyError",
    "UnauthorizedError",
    "UnavailableError",
    "UnexpectedAnswerError",
]
