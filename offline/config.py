"""FitConfig: every option of a fit, validated on construction."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator

# These take whole modules or parameters: the size is what they may have at most.
WholeStrategy = Literal["last-layer", "modules", "parameters"]
Strategy = Literal[
    "auto",
    "wasserstein-swag",
    "wasserstein-laplace",
    "wasserstein-exact",
    "gradient",
    "leverage",
    "greedy",
    "novelty",
    "novelty-sampling",
    "magnitude",
    "random",
    WholeStrategy,
]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FitConfig(BaseModel):
    """How to fit a bundle.

    `subnetwork_size` is a number of weights or, as a float in (0, 1], a share of all trainable weights; "auto",
    "last-layer", "modules" and "parameters" take at most so many. `selection` is a strategy and `selection_options` its
    arguments; `within` restricts it to named modules, `kinds="weights"` leaves biases and normalisations out.
    `prior_precision` is lambda, or how to find it: "budget" takes the smallest (the largest uncertainty) that costs at
    most `uncertainty_budget` nats of held-out log-likelihood, "gridsearch" the best held-out log-likelihood, "marglik"
    the largest evidence; with `prior_scaling="subnetwork"` the posterior holds lambda * S / D (Daxberger et al. 2021,
    appendix "Updating the prior precision ..."). `posterior="low-rank"` keeps the eigenpairs that hold the variances to
    `posterior_tolerance` (relative). `sigma_noise` (regression) is a standard deviation in the target's units; "mle"
    takes the one that, with the variance of the weights, makes held-out targets likeliest. `temperature`
    (classification) divides the logits; "fit" takes the best held-out log-likelihood. `false_reject_rate` is the share
    of in-distribution inputs that may be rejected. `memory_budget` in bytes (or "2GiB"; None: 60 % of what is free).
    `checkpoint_seconds`: how often a long pass is saved. `device`: "auto", "cpu", "cuda" or "cuda:n".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    likelihood: Literal["classification", "regression"] = "classification"
    subnetwork_size: int | float = 1000
    selection: Strategy = "auto"
    selection_options: dict[str, Any] = Field(default_factory=dict)
    within: tuple[str, ...] | None = None
    kinds: Literal["all", "weights"] = "all"
    prior_precision: Positive | Literal["budget", "gridsearch", "marglik"] = "budget"
    uncertainty_budget: Positive = 0.05
    prior_scaling: Literal["subnetwork", "none"] = "subnetwork"
    posterior: Literal["cholesky", "low-rank"] = "cholesky"
    posterior_tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.01
    sigma_noise: Positive | Literal["mle"] = "mle"
    temperature: Positive | Literal["fit"] = 1.0
    false_reject_rate: Annotated[float, Field(gt=0, lt=1)] = 0.05
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    memory_budget: Annotated[ByteSize, Field(gt=0)] | None = None
    checkpoint_seconds: Positive = 300.0
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/]+$")] = "model"
    version: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/]+$")] = "1"

    @field_validator("subnetwork_size", mode="before")
    @classmethod
    def _check_size(cls, value: Any) -> int | float:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        if isinstance(value, float) and 0 < value <= 1:
            return value
        raise ValueError(f"found {value!r}, expected an integer of at least 1 or a share in (0, 1]")

    @property
    def estimates_noise(self) -> bool:
        """Whether the observation noise is estimated on held-out data."""
        return self.likelihood == "regression" and self.sigma_noise == "mle"

    @property
    def tunes(self) -> bool:
        """Whether half of the held-out data tunes something; otherwise all of it sets the threshold."""
        fits_temperature = self.temperature == "fit" and self.likelihood == "classification"
        searched = self.prior_precision in ("budget", "gridsearch")
        for_weights = self.selection == "auto" or self.posterior == "low-rank"
        return searched or fits_temperature or for_weights or self.estimates_noise

    def resolve_size(self, total: int) -> int:
        """S for a model with D = `total` trainable weights; `ValueError` when S > D."""
        if isinstance(self.subnetwork_size, float):
            return max(1, round(self.subnetwork_size * total))
        if self.subnetwork_size > total and self.selection not in get_args(WholeStrategy):
            raise ValueError(
                f"subnetwork_size: found {self.subnetwork_size}, expected at most the model's {total} trainable "
                "weights; give a share such as 1.0 for all of them"
            )
        return min(self.subnetwork_size, total)
