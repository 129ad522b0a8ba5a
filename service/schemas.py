"""The native API's requests and answers: pydantic models, for parsing and for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class PredictRequest(BaseModel):
    """Exactly one of `inputs` and `images`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    inputs: Annotated[
        list[Any] | dict[str, Any] | None,
        Field(
            description="Numbers as the network takes them, shape (batch, *input shape) or one example; or one object "
            "an example, with a field for each feature, where the model has feature names. Of a model with several "
            "inputs, an object with the numbers of each under its name."
        ),
    ] = None
    images: Annotated[
        Annotated[list[str], Field(fail_fast=True)] | None,
        Field(description="Base64 PNG, JPEG or WebP files; decoded and scaled as the bundle's input spec says."),
    ] = None

    @model_validator(mode="after")
    def exactly_one(self) -> "PredictRequest":
        if (self.inputs is None) == (self.images is None):
            raise ValueError("expected exactly one of the fields 'inputs' and 'images'")
        return self


class ModelName(BaseModel):
    """Which model answered."""

    name: str
    version: str
    digest: Annotated[str, Field(description="SHA-256 of the bundle's manifest, and so of the whole bundle.")]


class OutOfDistribution(BaseModel):
    """Whether an input resembles the calibration data, and the decision."""

    score: Annotated[
        float,
        Field(
            description="The score of the bundle: predictive entropy in nats (classification) or epistemic standard "
            "deviation, unless the fit was given another one."
        ),
    ]
    p_value: Annotated[float, Field(description="Conformal p-value of the score against the calibration data.")]
    threshold: Annotated[float, Field(description="The largest score still accepted.")]
    false_reject_rate: Annotated[
        float,
        Field(description="Share of inputs like the held-out ones that is rejected at most, on average over fits."),
    ]
    rejected: bool
    reason: str | None


class Uncertainty(BaseModel):
    """Entropies in nats; total = aleatoric + epistemic."""

    total: float
    aleatoric: float
    epistemic: float


class VarianceParts(BaseModel):
    """The two parts of an example's variances, from posteriors that are independent."""

    subnetwork: Annotated[list[float], Field(description="Of the network's chosen weights, one entry for each output.")]
    added: Annotated[
        float,
        Field(
            description="Of weights that were added to the network, the same for every output: it grows with the "
            "distance from the training data."
        ),
    ]


class PredictionSet(BaseModel):
    """Classes that together hold the true one with a probability of at least `level`, over inputs like the held-out
    ones."""

    level: float
    labels: Annotated[list[str], Field(description="In descending order of probability.")]


VARIANCE_PARTS = Annotated[
    VarianceParts | None,
    Field(description="What the variances are the sum of; null for a bundle without added weights."),
]


class ClassificationPrediction(BaseModel):
    """One example; logits in nats, variances of the logits. What needs the posterior is null in a degraded answer."""

    label: str
    probability: Annotated[float, Field(description="Probability of the label.")]
    probabilities: Annotated[dict[str, float], Field(description="Probit-adjusted, by class.")]
    map_probabilities: Annotated[dict[str, float], Field(description="The plain network's, by class.")]
    map_label: Annotated[str, Field(description="The plain network's choice; may differ from the label.")]
    logit_mean: list[float]
    logit_variance: list[float] | None
    variance_parts: VARIANCE_PARTS = None
    uncertainty: Uncertainty | None
    prediction_set: PredictionSet | None
    ood: OutOfDistribution | None


class LabelSet(BaseModel):
    """What is sure of each label at this level: for each label by itself, being sure is wrong for a share of 1 - level
    of inputs like the held-out ones at most."""

    level: float
    present: Annotated[list[str], Field(description="Labels that the example surely has.")]
    absent: Annotated[list[str], Field(description="Labels that it surely has not.")]
    undecided: Annotated[list[str], Field(description="Labels that it may have or not.")]


class MultilabelPrediction(BaseModel):
    """One example with any number of labels; logits in nats. What needs the posterior is null in a degraded answer."""

    labels: Annotated[list[str], Field(description="Those with a probability of at least 0.5.")]
    probabilities: Annotated[dict[str, float], Field(description="Of having each label, probit-adjusted.")]
    map_probabilities: Annotated[dict[str, float], Field(description="The plain network's.")]
    map_labels: Annotated[list[str], Field(description="The plain network's choice.")]
    logit_mean: list[float]
    logit_variance: list[float] | None
    variance_parts: VARIANCE_PARTS = None
    uncertainty: Annotated[Uncertainty | None, Field(description="Summed over the labels.")]
    prediction_set: LabelSet | None
    ood: OutOfDistribution | None


class ValueVarianceParts(BaseModel):
    """The two parts of an example's variances, from posteriors that are independent, one entry for each output."""

    subnetwork: Annotated[list[float], Field(description="Of the network's chosen weights.")]
    added: Annotated[
        list[float],
        Field(
            description="Of weights that were added to the network: it grows with the distance from the training data, "
            "and outputs differ by their noise."
        ),
    ]


class Interval(BaseModel):
    """Interval around the mean that holds the target with a probability of `level`.

    `conformal`: at least so often over inputs like the held-out ones, each output by itself; `gaussian`: where the
    predictive distribution is right.
    """

    level: float
    low: list[float]
    high: list[float]
    kind: Literal["conformal", "gaussian"] = "gaussian"


class RegressionPrediction(BaseModel):
    """One entry for each output, in its units. What needs the posterior is null in a degraded answer."""

    names: Annotated[list[str] | None, Field(description="Of the outputs; null for a bundle without names.")] = None
    mean: list[float]
    epistemic_std: list[float] | None
    variance_parts: Annotated[
        ValueVarianceParts | None,
        Field(description="What the variances are the sum of; null for a bundle without added weights."),
    ] = None
    noise_std: list[float]
    std: Annotated[list[float] | None, Field(description="sqrt(epistemic_std^2 + noise_std^2)")]
    interval: Interval | None
    ood: OutOfDistribution | None


class Timing(BaseModel):
    """Seconds spent decoding the body, waiting for a compute thread, and computing the batches with these examples."""

    decode_seconds: float
    queue_seconds: float
    compute_seconds: float


class PredictResponse(BaseModel):
    """One prediction an example, in the order of the request."""

    id: Annotated[str, Field(description="The request's `X-Request-ID`, or a random one.")]
    receipt: Annotated[
        str | None, Field(description="What `POST /feedback` takes with the labels, where the operator wants them.")
    ] = None
    model: ModelName
    predictions: list[ClassificationPrediction] | list[MultilabelPrediction] | list[RegressionPrediction]
    degraded: Annotated[
        bool, Field(description="Whether the plain network answered alone, for lack of time: no uncertainty is known.")
    ] = False
    warnings: Annotated[
        list[str], Field(description="Inputs far outside the values that the network was fitted on, and the like.")
    ] = []
    timing: Timing


class FeedbackRequest(BaseModel):
    """What is true of the examples of an earlier answer: `labels` for a classification, `values` for a regression.

    Where an example has several labels, each entry of `labels` is the list of those that it has.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    receipt: Annotated[str, Field(description="That of the answer.")]
    labels: Annotated[
        list[Any] | None,
        Field(description="The name of each example's true class, in the order of the request; null: not known."),
    ] = None
    values: Annotated[
        list[Any] | None,
        Field(description="The true value of each example, or a list of one for each output; null: not known."),
    ] = None


class FeedbackResponse(BaseModel):
    """How many labels were counted."""

    model: ModelName
    examples: Annotated[int, Field(description="Examples of the answer that the labels belong to.")]
    counted: Annotated[int, Field(description="Examples whose label counts from now on.")]
    already_labelled: Annotated[int, Field(description="Examples whose earlier label stays.")]


class Problem(BaseModel):
    """RFC 9457 problem details. `field`, `found` and `expected` stand where a value was wrong."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    found: str | None = None
    expected: str | None = None


class Health(BaseModel):
    """State of the process."""

    status: Literal["live", "ready"]


class ModelVersion(BaseModel):
    """A loaded model."""

    name: str
    version: str
    digest: str
    default: Annotated[bool, Field(description="Whether it answers `/predict`.")]


class ModelList(BaseModel):
    """Every loaded version of every model."""

    models: list[ModelVersion]
