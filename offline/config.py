"""FitConfig: every option of a fit, validated on construction."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from demur.service.format.manifest import MAX_MODEL_NAME, MAX_VERSION, Task
from demur.service.format.text import checked_segment, suggestion
from demur.service.format.validation import in_one_line, refused_value
from demur.service.maths.scores import DISTANCE

# These take the last layer or every layer: the size is what they may have at most.
WholeStrategyName = Literal["last-layer", "all"]
StrategyName = Literal[
    "auto",
    "wasserstein-swag",
    "wasserstein-laplace",
    "random",
    WholeStrategyName,
]

DEFAULT_SCORE: Literal["default"] = "default"
SURPRISE: Literal["surprise"] = "surprise"  # needs the distance that added weights give
ADDED_BUDGET, SUBNETWORK_BUDGET = 0.004, 0.05  # nats
LOSS_SHARE, LEAST_BUDGET = 0.05, 0.001  # of a classification: nats, of a nat of its loss, and nats

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

LISTED = "docs/fitting.md lists all, and demur fit --help"


class OptionError(ValueError):
    """An option of a fit that is not known, or has a value that it cannot have: in one line.

    option: its name; "" for several that do not go together.
    """

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


class FitConfig(BaseModel):
    """How to fit a bundle. Each field has its description; docs/fitting.md lists them. Raises `OptionError`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    if not TYPE_CHECKING:  # who checks types sees the fields

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise OptionError(in_one_line(error, FitConfig.model_fields, LISTED), refused_value(error)[0]) from None

    likelihood: Annotated[
        Task,
        Field(
            description="Kind of targets: class numbers; 0 or 1 for each label that an example may have (`multilabel`, "
            "which such targets also choose by themselves); or values with Gaussian noise."
        ),
    ] = "classification"
    subnetwork_size: Annotated[
        int | float,
        Field(
            description="Number of weights to choose; a float in (0, 1] is a fraction of all trainable weights. "
            "`auto`, `last-layer`, `all` and functions treat it as an upper limit."
        ),
    ] = 1000
    selection: Annotated[
        StrategyName | Callable[..., Any],
        Field(
            description="Strategy that chooses the weights; in Python also a function of the `SelectionContext` and of "
            "the `selection_options` by name, that returns their positions."
        ),
    ] = "auto"
    selection_options: dict[str, Any] = Field(default_factory=dict, description="Options of the strategy.")
    within: Annotated[
        tuple[str, ...] | None,
        Field(description="Paths of the modules to choose weights from; None: the whole network."),
    ] = None
    prior_precision: Annotated[
        Positive | Literal["budget", "gridsearch", "marglik"] | None,
        Field(
            description="Prior precision lambda of the chosen weights, or how to choose it: `budget` takes the "
            "smallest (the most uncertainty) that costs at most `uncertainty_budget`, `gridsearch` the one with the "
            "best held-out log-likelihood, `marglik` the one with the largest evidence. None: `marglik` with "
            "added weights, behind whose gate only the shape of the variances matters; without, `budget`."
        ),
    ] = None
    uncertainty_budget: Annotated[
        Positive | None,
        Field(
            description="How many nats of mean held-out log-likelihood the uncertainty may cost, below the best "
            "without any; with added weights, its standard error included. None: of a classification a "
            "twentieth of the loss without uncertainty, but at least 0.001 and at most 0.004; of a regression 0.004 "
            "with added weights and 0.05 without."
        ),
    ] = None
    added_weights: Annotated[
        Annotated[bool, Field(strict=True)] | tuple[str, ...],
        Field(
            description="Whether the posterior is also over weights that are added to the network, on random features "
            "of its activations: their variance grows with the distance from the training data. A list of paths: "
            "those of the layers whose inputs they read."
        ),
    ] = True
    curvature_outputs: Annotated[
        int,
        Field(
            ge=2,
            description="For more classes than these, the curvature of an example takes the most probable ones one by "
            "one and the others together. The variances are never too small for a given prior precision, and about "
            "right where the others have little probability; a warning says where they have more than 2 %.",
        ),
    ] = 64
    score: Annotated[
        Literal["default", "predictive_entropy", "distance", "epistemic_std", "surprise"],
        Field(
            description="Out-of-distribution score by which inputs are rejected. `default`: with added weights "
            "`surprise`, of a regression `distance`; without, `predictive_entropy` and `epistemic_std`. "
            "service/BUNDLE.md lists all scores."
        ),
    ] = DEFAULT_SCORE
    sigma_noise: Annotated[
        Positive | Literal["mle"],
        Field(
            description="Observation noise of a regression: a standard deviation in the target's units, or `mle`: that "
            "under which the held-out targets are most likely, of several targets one for each."
        ),
    ] = "mle"
    temperature: Annotated[
        Positive | Literal["fit"] | None,
        Field(
            description="Divisor of a classifier's logits; `fit` takes the value with the best held-out "
            "log-likelihood, with and without the posterior. None: `fit` with added weights, 1 without."
        ),
    ] = None
    false_reject_rate: Annotated[
        float,
        Field(
            gt=0, lt=1, description="Fraction of in-distribution inputs that may be rejected; it sets the threshold."
        ),
    ] = 0.05
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Seed for everything random.")] = 0
    memory_budget: Annotated[
        Annotated[ByteSize, Field(gt=0)] | None,
        Field(description="Maximum memory, in bytes or e.g. `2GiB`; None: 60 % of the free memory."),
    ] = None
    device: Annotated[
        str,
        Field(description="`auto` (the GPU if there is one), `cpu`, `cuda` or `cuda:n`."),
    ] = "auto"
    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_MODEL_NAME,
            description="Name of the model, under which the service serves it.",
        ),
    ] = "model"
    version: Annotated[str, Field(min_length=1, max_length=MAX_VERSION, description="Version of the model.")] = "1"

    @field_validator("name", "version")
    @classmethod
    def _check_name(cls, value: str) -> str:
        return checked_segment(value)

    @field_validator("subnetwork_size", mode="before")
    @classmethod
    def _check_size(cls, value: Any) -> int | float:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        if isinstance(value, float) and 0 < value <= 1:
            return value
        raise ValueError(f"found {value!r}, expected an integer of at least 1 or a share in (0, 1]")

    @field_validator("selection", mode="plain")
    @classmethod
    def _check_selection(cls, value: Any) -> Any:
        named = get_args(StrategyName)
        if not callable(value) and value not in named:
            hint = suggestion(value, named) if isinstance(value, str) else ""
            raise ValueError(f"found {value!r:.100}{hint}, expected {', '.join(map(repr, named))} or a function")
        return value

    @field_serializer("selection", when_used="json")
    def _name_selection(self, value: Any) -> str:
        return strategy_name(value)

    @field_validator("device")
    @classmethod
    def _check_device(cls, value: str) -> str:
        if not DEVICE.fullmatch(value):
            raise ValueError(f"found {value!r:.100}, expected 'auto', 'cpu', 'cuda' or 'cuda:n'")
        return value

    @property
    def estimates_noise(self) -> bool:
        """Whether the observation noise is estimated on held-out data."""
        return self.likelihood == "regression" and self.sigma_noise == "mle"

    @model_validator(mode="after")
    def _check_score(self) -> "FitConfig":
        own = ("epistemic_std",) if self.likelihood == "regression" else ("predictive_entropy", SURPRISE)
        known = (DEFAULT_SCORE, *own, DISTANCE.name)
        if self.score not in known:
            raise ValueError(f"score: found {self.score!r} for a {self.likelihood}, expected one of {', '.join(known)}")
        if self.score in (DISTANCE.name, SURPRISE) and not self.added_weights:
            raise ValueError(f"score: found {self.score!r} without added_weights, expected added_weights=True with it")
        return self

    @field_validator("added_weights")
    @classmethod
    def _check_layers(cls, value: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        if value == ():
            raise ValueError("found an empty list, expected paths of layers; True chooses them, False leaves them out")
        return value

    def budget(self, loss: float, *, added: bool) -> float:
        """`uncertainty_budget`, in nats; by default a share of a classification's `loss`, or by the `added` weights."""
        if self.uncertainty_budget is not None:
            return self.uncertainty_budget
        if self.likelihood == "regression":
            return ADDED_BUDGET if added else SUBNETWORK_BUDGET
        return min(max(LOSS_SHARE * loss, LEAST_BUDGET), ADDED_BUDGET)

    @property
    def fits_temperature(self) -> bool:
        """Whether the temperature of a classification is fitted."""
        wanted = self.temperature == "fit" or (self.temperature is None and bool(self.added_weights))
        return wanted and self.likelihood != "regression"

    @property
    def given_temperature(self) -> float:
        """That of the logits before anything is fitted."""
        return 1.0 if self.temperature is None or self.temperature == "fit" else self.temperature

    @property
    def tunes(self) -> bool:
        """Whether half of the held-out data tunes something; otherwise all of it sets the threshold."""
        searched = self.prior_precision in ("budget", "gridsearch", None)
        return bool(self.added_weights) or searched or self.fits_temperature or self.estimates_noise

    def resolve_size(self, total: int) -> int:
        """S for a model with D = `total` trainable weights; `ValueError` when S > D and S is no upper limit."""
        if isinstance(self.subnetwork_size, float):
            return max(1, round(self.subnetwork_size * total))
        stated = "subnetwork_size" in self.model_fields_set
        exactly = not callable(self.selection) and self.selection not in ("auto", *get_args(WholeStrategyName))
        if stated and self.subnetwork_size > total and exactly:
            raise ValueError(
                f"subnetwork_size: found {self.subnetwork_size}, expected at most the model's {total} trainable "
                "weights; give a share such as 1.0 for all of them"
            )
        return min(self.subnetwork_size, total)


def strategy_name(selection: str | Callable[..., Any]) -> str:
    """As the manifest has it: a function by its name and (), wherever its file lies, an object by its class."""
    if isinstance(selection, str):
        return selection
    named = selection
    while isinstance(named, functools.partial):
        named = named.func
    return f"{getattr(named, '__qualname__', type(named).__qualname__)}()"


def check_each(options: Mapping[str, Any]) -> None:
    """`OptionError` for an option that is wrong whatever the others are."""
    try:
        FitConfig(**options)
    except OptionError as error:
        if error.option:
            raise
