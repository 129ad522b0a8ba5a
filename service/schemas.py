"""The native API's requests and answers: pydantic models, for parsing and for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class PredictRequest(BaseModel):
    """Exactly one of `inputs`, `images` and `texts`."""

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
    texts: Annotated[
        Annotated[list[str], Field(fail_fast=True)] | None,
        Field(description="Texts, where the bundle has a tokenizer."),
    ] = None

    @model_validator(mode="after")
    def exactly_one(self) -> "PredictRequest":
        if sum(given is not None for given in (self.inputs, self.images, self.texts)) != 1:
            raise ValueError("expected exactly one of the fields 'inputs', 'images' and 'texts'")
        return self


class ModelName(BaseModel):
    """Which model answered."""

    name: str
    version: str
    digest: Annotated[str, Field(description="SHA-256 of the bundle's manifest, and so of the whole bundle.")]


def _all_may_be_absent(schema: dict[str, Any]) -> None:
    """For OpenAPI: a request may ask for some fields alone."""
    schema.pop("required", None)


ByClass = dict[str, float]
MAP = "The plain network's (the MAP estimate), at a temperature of its own."


class Example(BaseModel):
    """What every example has: the decision."""

    model_config = ConfigDict(json_schema_extra=_all_may_be_absent)

    rejected: Annotated[
        bool,
        Field(
            description="Whether the score is above the threshold, as for a share `false_reject_rate` of ordinary "
            "inputs."
        ),
    ]
    p_value: Annotated[float, Field(description="Conformal p-value of the score against that of held-out examples.")]
    score: Annotated[
        float, Field(description="How foreign or ambiguous the input is, by the score that the bundle was fitted with.")
    ]
    reason: Annotated[str | None, Field(description="A sentence about a rejection.")]
    threshold: Annotated[float | None, Field(description="With `detail=full`: the largest score still accepted.")] = (
        None
    )
    false_reject_rate: Annotated[
        float | None,
        Field(
            description="With `detail=full`: share of inputs like the held-out ones that is rejected at most, on "
            "average over fits."
        ),
    ] = None


class Uncertainty(BaseModel):
    """Entropies in nats; total = aleatoric + epistemic."""

    total: float
    aleatoric: float
    epistemic: float


class VarianceParts(BaseModel):
    """The two parts of an example's variances, from posteriors that are independent."""

    subnetwork: Annotated[ByClass, Field(description="Of the network's chosen weights, by class.")]
    added: Annotated[
        float,
        Field(
            description="Of weights that were added to the network, the same for every class: it grows with the "
            "distance from the training data."
        ),
    ]


class OfClasses(Example):
    """What classes and labels share. Of many classes, `top` of them are shown, the most probable first."""

    probabilities: Annotated[ByClass, Field(description="By class, with the uncertainty about the weights.")]
    variance: Annotated[float, Field(description="Of the logits under the posterior, the mean over all classes.")]
    map_probabilities: Annotated[ByClass | None, Field(description=f"With `detail=full`. {MAP}")] = None
    logit_mean: Annotated[ByClass | None, Field(description="With `detail=full`: the logits, by class.")] = None
    logit_variance: Annotated[ByClass | None, Field(description="With `detail=full`: their variances, by class.")] = (
        None
    )
    variance_parts: Annotated[
        VarianceParts | None,
        Field(description="With `detail=full`: what the variances are the sum of; null without added weights."),
    ] = None
    uncertainty: Annotated[
        Uncertainty | None,
        Field(description="With `detail=full`: entropies, summed over the labels where an example has several."),
    ] = None


class PredictionSet(BaseModel):
    """Classes that together hold the true one with a probability of at least `level`, over inputs like the held-out
    ones."""

    level: float
    size: Annotated[int, Field(description="How many classes belong to it.")]
    labels: Annotated[list[str], Field(description="All of them, in descending order of probability.")]


class ClassificationPrediction(OfClasses):
    """One example of one class."""

    label: Annotated[str, Field(description="The most probable class.")]
    probability: Annotated[float, Field(description="Probability of the label.")]
    prediction_set: PredictionSet | None
    map_label: Annotated[str | None, Field(description=f"With `detail=full`. {MAP} It may differ from the label.")] = (
        None
    )


class LabelSet(BaseModel):
    """What is sure of each label at this level: for each label by itself, being sure is wrong for a share of 1 - level
    of inputs like the held-out ones at most."""

    level: float
    present: Annotated[list[str], Field(description="Labels that the example surely has.")]
    undecided: Annotated[list[str], Field(description="Labels that it may have or not.")]
    absent: Annotated[list[str], Field(description="Labels that it surely has not.")]


class MultilabelPrediction(OfClasses):
    """One example with any number of labels."""

    labels: Annotated[list[str], Field(description="Those with a probability of at least 0.5.")]
    prediction_set: LabelSet | None
    map_labels: Annotated[list[str] | None, Field(description=f"With `detail=full`. {MAP}")] = None


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


class RegressionPrediction(Example):
    """One entry for each output, in its units."""

    names: Annotated[list[str] | None, Field(description="Of the outputs; null for a bundle without names.")]
    mean: list[float]
    std: Annotated[list[float], Field(description="sqrt(variance + noise_std^2)")]
    interval: Interval
    variance: Annotated[list[float], Field(description="Of the mean, under the posterior.")]
    noise_std: Annotated[
        list[float] | None,
        Field(description="With `detail=full`."),
    ] = None
    variance_parts: Annotated[
        ValueVarianceParts | None,
        Field(description="With `detail=full`: what the variances are the sum of; null without added weights."),
    ] = None


class Timing(BaseModel):
    """Seconds spent decoding the body, waiting for room and for a compute thread, and computing the batches with these
    examples."""

    decode_seconds: float
    queue_seconds: float
    compute_seconds: float


class PredictResponse(BaseModel):
    """One prediction an example, in the order of the request. Numbers have six or seven significant digits."""

    id: Annotated[str, Field(description="The request's `X-Request-ID`, or a random one.")]
    receipt: Annotated[
        str | None, Field(description="What `POST /feedback` takes with the labels, where the operator wants them.")
    ] = None
    model: ModelName
    predictions: list[ClassificationPrediction] | list[MultilabelPrediction] | list[RegressionPrediction]
    warnings: Annotated[
        list[str], Field(description="Inputs far outside the values that the network was fitted on, and the like.")
    ] = []
    timing: Annotated[Timing | None, Field(description="With `detail=full`.")] = None


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
