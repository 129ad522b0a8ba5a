"""The manifest of a bundle: everything about it but its tensors. `service/BUNDLE.md` is the normative text."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from ..maths.predictive import Link
from ..maths.scores import FeatureScoreName, MistakeName
from .manifest_input import LARGEST, InputSpec
from .manifest_parts import (
    AddedWeights,
    Calibration,
    FileEntry,
    Graph,
    InputNoise,
    Posterior,
    Prior,
    RejectedShare,
    Selection,
    Verification,
)
from .rules import Part, check_fields
from .text import is_segment

FORMAT_MAJOR, FORMAT_MINOR = 1, 0
FORMAT_VERSION = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"

MAX_MODEL_NAME, MAX_VERSION = 200, 100
NAME_RULE = "1 to {} characters without '/', and neither '.' nor '..'"
MAX_OUTPUTS, MAX_CLASSES = 2**18, 2**15  # a service keeps a time series for each class

Task = Literal["classification", "multilabel", "regression"]
"""One class of several, any number of labels, or real values an example."""
LINKS: dict[Task, tuple[Link, ...]] = {
    "classification": ("probit", "probit-shared"),
    "multilabel": ("probit-sigmoid",),
    "regression": ("gaussian",),
}


@dataclass(frozen=True)
class Manifest(Part):
    """Everything about a bundle but its tensors. Field by field: `service/BUNDLE.md`."""

    name: str
    version: str
    task: Task
    input: InputSpec
    outputs: int
    class_names: tuple[str, ...] | None
    parameter_count: int
    subnetwork_size: int
    selection: Selection
    prior: Prior
    posterior: Posterior
    sigma_noise: float | tuple[float, ...] | None
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)]
    map_temperature: Annotated[float, Field(ge=1e-6, le=1e6)]
    link: Link
    opset: int
    graph: Graph
    calibration: Calibration
    verification: Verification | None
    added_weights: AddedWeights | None = None
    rejection: tuple[RejectedShare, ...] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    files: dict[str, FileEntry] = field(default_factory=dict)
    format: Literal["demur-bundle"] = "demur-bundle"
    format_version: str = FORMAT_VERSION

    def __post_init__(self) -> None:
        classification, regression = self.task == "classification", self.task == "regression"
        names, most = self.class_names, MAX_OUTPUTS if regression else MAX_CLASSES
        noises = () if self.noises is None else self.noises
        check_fields(
            "",
            self,
            ("name", len(self.name) <= MAX_MODEL_NAME and is_segment(self.name), NAME_RULE.format(MAX_MODEL_NAME)),
            ("version", len(self.version) <= MAX_VERSION and is_segment(self.version), NAME_RULE.format(MAX_VERSION)),
            ("outputs", self.outputs >= (2 if classification else 1), "at least 1 (2 for classification)"),
            ("outputs", self.outputs <= most, f"at most {most}"),
            ("class_names", names is None or len(names) == self.outputs, f"null or {self.outputs} names"),
            ("class_names", names is None or len(set(names)) == len(names), "names that differ"),
            ("subnetwork_size", 1 <= self.subnetwork_size <= self.parameter_count, "1 to parameter_count"),
            ("link", self.link in LINKS[self.task], f"that of the task, {' or '.join(LINKS[self.task])}"),
            ("sigma_noise", (self.noises is None) != regression, "a number for regression, else null"),
            ("sigma_noise", len(noises) == self.outputs * regression, f"a number, or {self.outputs} numbers"),
            ("sigma_noise", all(0 < noise <= LARGEST for noise in noises), f"positive numbers up to {LARGEST:g}"),
        )
        self._check_calibration()
        self._check_rejection()
        self._check_link()
        size = self.posterior.size == self.subnetwork_size
        check_fields("posterior", self.posterior, ("size", size, f"subnetwork_size, {self.subnetwork_size}"))

    @property
    def noises(self) -> tuple[float, ...] | None:
        """The standard deviation of each output's noise; None but for a regression."""
        sigma = self.sigma_noise
        return sigma if sigma is None or isinstance(sigma, tuple) else (sigma,) * self.outputs

    @property
    def input_noise(self) -> InputNoise | None:
        """How the noise depends on the input; None where it does not."""
        return None if self.added_weights is None else self.added_weights.noise

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the outputs: of classes, labels or values; "0", "1", ... where the bundle has none."""
        return self.class_names or tuple(map(str, range(self.outputs)))

    def _check_calibration(self) -> None:
        calibration, regression = self.calibration, self.task == "regression"
        singles = ("epistemic_std" if regression else "predictive_entropy", *self.feature_scores)
        alone = tuple(name for name in singles if name not in self.mistakes)
        names = alone if regression else (*alone, "surprise")
        parts = all(part.name in singles for part in calibration.parts or ())
        sets = (calibration.outcomes.set_score is not None) == (self.task == "classification")
        check_fields(
            "calibration",
            calibration,
            ("score", calibration.score in names, f"one of {', '.join(names)}"),
            ("parts", parts, "single scores of a classification"),
            ("outcomes", sets, "a set_score for a classification, else null"),
        )

    def _check_rejection(self) -> None:
        names = None if self.rejection is None else [found.name for found in self.rejection]
        sound = names is None or (bool(names) and len(set(names)) == len(names))
        check_fields("", self, ("rejection", sound, "null, or shares under names that differ"))

    def _check_link(self) -> None:
        shared = self.task == "classification" and self.added_weights is not None
        check_fields("", self, ("link", shared == (self.link == "probit-shared"), "'probit-shared' with added weights"))
        sound = self.input_noise is None or self.task == "regression"
        check_fields("added_weights", self.added_weights, ("noise", sound, "null, but of a regression"))

    @property
    def feature_scores(self) -> tuple[FeatureScoreName, ...]:
        """Names of the feature scores that the graph gives, in the order of the columns."""
        return self.graph.feature_scores or ()

    @property
    def mistakes(self) -> tuple[MistakeName, ...]:
        """Those of clients that the graph can tell, in the order of the columns."""
        return tuple(name for name in self.feature_scores if name != "distance")
