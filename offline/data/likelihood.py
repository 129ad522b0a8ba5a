"""The three likelihoods p(y | f) of a network's outputs f: targets, output Hessian, predictive, score."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from demur.service.format.manifest import Task
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Prediction, Predictive
from demur.service.maths.predictive import Link, label_log_likelihood, link_approx, predictive_std
from demur.service.maths.scores import EPISTEMIC_STD, NO_FEATURES, PREDICTIVE_ENTROPY, Scoring

from ..runtime.arrays import Array


@dataclass(frozen=True)
class Classification:
    """K >= 2 classes; the outputs are logits, which the predictive divides by `temperature`.

    most_rows: for more classes, the curvature of an example has so many rows (`leading_root`). scoring: what makes the
    out-of-distribution score. link: what the variances are of (`demur.service.maths.predictive.link_approx`).
    map_temperature: of the network without the posterior; None: `temperature`.
    """

    outputs: int
    temperature: float = 1.0
    most_rows: int = 64
    scoring: Scoring = PREDICTIVE_ENTROPY
    link: Link = "probit"
    map_temperature: float | None = None
    task: ClassVar[Task] = "classification"
    sigma_noise: ClassVar[None] = None
    noise_variance: ClassVar[float] = 1.0

    def check_targets(self, targets: Tensor, batch: int) -> Tensor:
        """Class numbers (B,) int64 in [0, K); `ValueError` for anything else.

        For two classes also 0 and 1 of any type, (B,) or (B, 1), as the binary cross-entropy takes them.
        """
        if self.outputs == 2:
            targets = _class_numbers(targets, batch)
        _refuse_columns(targets, self.outputs)
        if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            whole = not targets.is_complex() and bool((targets == targets.long()).all())
            signs = whole and set(targets.flatten().tolist()) == {-1, 1}
            remedy = "give (targets > 0).long(); " if signs else "give targets.long(); " if whole else ""
            raise ValueError(
                f"targets: found dtype {targets.dtype}, expected integer class numbers; {remedy}for values with noise, "
                "give likelihood='regression'"
            )
        if tuple(targets.shape) != (batch,):
            remedy = "; give targets.reshape(-1)" if targets.numel() == batch else ""
            found = f"found shape {tuple(targets.shape)}"
            raise ValueError(f"targets: {found}, expected ({batch},) class numbers{remedy}")
        targets = targets.long()
        if int(targets.min()) < 0 or int(targets.max()) >= self.outputs:
            outputs = "one logit or 2" if self.outputs == 2 else self.outputs
            remedy = _renumbered(targets, self.outputs)
            raise ValueError(
                f"targets: found class numbers from {int(targets.min())} to {int(targets.max())}, expected 0 to "
                f"{self.outputs - 1} for a model with {outputs} outputs; {remedy}for values with noise, give "
                "likelihood='regression'"
            )
        return targets

    def sqrt_hessian_product(self, jacobian: Tensor, mean: Tensor) -> Tensor:
        """C^T J with C C^T = Lambda, the Hessian of the negative log-likelihood in the outputs, at temperature 1.

        Lambda = diag(p) - p p^T, C = diag(sqrt p) - p sqrt(p)^T, so row k of C^T J is sqrt(p_k) (J_k - sum_j p_j J_j).
        jacobian (B, K, S), mean (B, K) -> (B, K, S), in the Jacobian's precision.
        """
        p = torch.softmax(mean.to(jacobian.dtype), dim=1).unsqueeze(2)
        return p.sqrt() * (jacobian - (p * jacobian).sum(1, keepdim=True))

    @property
    def rows(self) -> int:
        """R, the rows of C^T of an example."""
        return min(self.outputs, self.most_rows)

    def together(self, mean: Tensor) -> Tensor:
        """r (B,): the probability of the classes that `leading_root` takes together; mean (B, K)."""
        return 1 - torch.topk(torch.softmax(mean.double(), dim=1), self.rows - 1, dim=1).values.sum(1)

    def leading_root(self, mean: Tensor) -> Tensor:
        """R rows c (B, R, K) with sum_r c_r c_r^T <= Lambda, for more than R classes; mean (B, K).

        Lambda = sum_k p_k (e_k - p) (e_k - p)^T. The R - 1 most probable classes have the row sqrt(p_k) (e_k - p) each;
        the others, of probability r together, the one row sqrt(r) (q - p), q = sum_k p_k e_k / r. What is left out,
        sum_k p_k (e_k - q) (e_k - q)^T over the others, is positive semi-definite and has a trace of at most r: the
        curvature is never too large, and the variances are never too small.
        """
        p = torch.softmax(mean, dim=1)
        top, places = torch.topk(p, self.rows - 1, dim=1)
        own = torch.zeros(*top.shape, p.shape[1], dtype=p.dtype, device=p.device).scatter_(2, places.unsqueeze(2), 1.0)
        others = p * (1 - own.sum(1))
        rest = others.sum(1, keepdim=True)
        lumped = others / rest.clamp(min=torch.finfo(p.dtype).tiny)
        each = torch.cat([own, lumped.unsqueeze(1)], dim=1) - p.unsqueeze(1)
        return torch.cat([top, rest], dim=1).sqrt().unsqueeze(2) * each

    def sqrt_hessian_transpose_product(self, vectors: Tensor, mean: Tensor) -> Tensor:
        """C z for `vectors` z (B, K): sqrt(p) z - p (sqrt(p)^T z); mean (B, K)."""
        p = torch.softmax(mean.to(vectors.dtype), dim=1)
        return p.sqrt() * vectors - p * (p.sqrt() * vectors).sum(1, keepdim=True)

    def correct(self, mean: Tensor, targets: Tensor) -> Tensor:
        """(B,) bool: whether the most probable class is the target; mean (B, K)."""
        return mean.argmax(1) == targets

    def training_loss(self, output: Tensor, targets: Tensor, noise_variance: float = 1.0) -> Tensor:  # noqa: ARG002
        """Mean negative log-likelihood of a batch."""
        return F.cross_entropy(output, targets)

    def probabilities(self, mean: Array, variance: Array) -> Array:
        """By the probit approximation, (n, K); mean, variance (n, K)."""
        return link_approx(mean, variance, self.temperature, self.link)

    def log_likelihood(self, mean: Array, variance: Array, targets: Array) -> Array:
        """Predictive log-likelihood of each example (n,); mean, variance (n, K)."""
        return class_log_likelihood(self.probabilities(mean, variance), targets)

    def with_shared_divisor(self) -> "Classification":
        """For variances with a part that all outputs share, as added weights give: one divisor for all logits."""
        return replace(self, link="probit-shared")

    @property
    def added_share(self) -> Array:
        """1: every output has the whole variance of added weights."""
        return np.ones(1)

    @property
    def plain_temperature(self) -> float:
        """T_0, of the network without the posterior."""
        return self.temperature if self.map_temperature is None else self.map_temperature

    def predict(self, mean: Array, variance: Array, features: Mapping[str, Array] = NO_FEATURES) -> Prediction:
        """Probabilities and scores by the serving code, in its precision; features: the feature scores (n,), by
        name."""
        outputs = GraphOutputs(mean.astype(np.float32), variance.astype(np.float32), features)
        predictive = Predictive(None, self.temperature, self.map_temperature, self.link, self.scoring)
        return predictive.undecided(outputs)


@dataclass(frozen=True)
class Multilabel(Classification):
    """K labels that an example has or has not, independent of each other given its logits: p_k = sigmoid(f_k / T)."""

    link: Link = "probit-sigmoid"
    task: ClassVar[Task] = "multilabel"

    def check_targets(self, targets: Tensor, batch: int) -> Tensor:
        """0 or 1 for each label, (B, K) in the default precision; `ValueError` for anything else."""
        if targets.dim() == 1 and self.outputs == 1:
            targets = targets.unsqueeze(1)
        if tuple(targets.shape) != (batch, self.outputs):
            raise ValueError(
                f"targets: found shape {tuple(targets.shape)}, expected ({batch}, {self.outputs}): 0 or 1 for each "
                "label"
            )
        if targets.is_complex() or not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError("targets: found other numbers than 0 and 1, expected 1 for each label that an example has")
        return targets.to(torch.get_default_dtype())

    def sqrt_hessian_product(self, jacobian: Tensor, mean: Tensor) -> Tensor:
        """C^T J, C = diag(sqrt(p (1 - p))): row k is sqrt(p_k (1 - p_k)) J_k."""
        return _label_root(mean.to(jacobian.dtype)).unsqueeze(2) * jacobian

    def sqrt_hessian_transpose_product(self, vectors: Tensor, mean: Tensor) -> Tensor:
        """C z for `vectors` z (B, K): sqrt(p (1 - p)) z."""
        return _label_root(mean.to(vectors.dtype)) * vectors

    @property
    def rows(self) -> int:
        """K: the curvature has a row for each label."""
        return self.outputs

    def correct(self, mean: Tensor, targets: Tensor) -> Tensor:
        """(B,) bool: whether all labels are right."""
        return ((mean >= 0) == (targets > 0)).all(dim=1)

    def training_loss(self, output: Tensor, targets: Tensor, noise_variance: float = 1.0) -> Tensor:  # noqa: ARG002
        """Mean over examples of the negative log-likelihood, the sum over labels of the binary cross-entropies."""
        return F.binary_cross_entropy_with_logits(output, targets, reduction="sum") / len(output)

    def log_likelihood(self, mean: Array, variance: Array, targets: Array) -> Array:
        """Predictive log-likelihood of each example (n,), summed over labels; mean, variance (n, K)."""
        return label_log_likelihood(mean, variance, targets, self.temperature)

    def with_shared_divisor(self) -> "Multilabel":
        """A logit is divided by its own variance: its sign, and so whether the label is likely, stays."""
        return self


@dataclass(frozen=True)
class Regression:
    """K values with Gaussian noise of standard deviations sigma r_k.

    sigma_noise: sigma, None as long as it is not known.
    ratios r (K,), of geometric mean 1: outputs in different units have noises of their own; None: all are 1. scoring:
    what makes the out-of-distribution score. noise_scale s (n, K): of the examples at hand, where their noise sigma r_k
    s_k depends on the input; None: all are 1.
    """

    outputs: int
    sigma_noise: float | None = None
    ratios: tuple[float, ...] | None = None
    scoring: Scoring = EPISTEMIC_STD
    noise_scale: Array | None = None
    task: ClassVar[Task] = "regression"
    link: ClassVar[Literal["gaussian"]] = "gaussian"
    temperature: ClassVar[float] = 1.0
    plain_temperature: ClassVar[float] = 1.0

    @property
    def rows(self) -> int:
        """K, the rows of an example in the curvature."""
        return self.outputs

    @property
    def noise(self) -> float:
        """sigma, which must be known by now."""
        assert self.sigma_noise is not None
        return self.sigma_noise

    @property
    def noise_variance(self) -> float:
        """sigma^2."""
        return self.noise**2

    @property
    def relative(self) -> Array:
        """r (K,)."""
        return np.ones(self.outputs) if self.ratios is None else np.array(self.ratios)

    @property
    def noises(self) -> Array:
        """sigma r (K,)."""
        return self.noise * self.relative

    @property
    def added_share(self) -> Array:
        """r_k^2 (K,): how much of the variance of added weights each output has."""
        return np.square(self.relative)

    def with_shared_divisor(self) -> "Regression":
        """A regression divides nothing."""
        return self

    def std(self, variance: Array) -> Array:
        """Of the predictive, (n, K)."""
        return predictive_std(variance, self.noises, self.noise_scale)

    def check_targets(self, targets: Tensor, batch: int) -> Tensor:
        """Values (B, K) in the default precision; `ValueError` for anything else."""
        if targets.dim() == 1 and self.outputs == 1:
            targets = targets.unsqueeze(1)
        if tuple(targets.shape) != (batch, self.outputs):
            whole = "" if targets.is_floating_point() else ", and its targets are no whole numbers: targets.float()"
            raise ValueError(
                f"targets: found shape {tuple(targets.shape)}, expected ({batch}, {self.outputs}), one for each output "
                "of the model; one of means and log variances returns two tensors of the targets' shape, or both side "
                f"by side{whole}"
            )
        if targets.is_complex():
            raise ValueError(f"targets: found dtype {targets.dtype}, expected real numbers")
        targets = targets.to(torch.get_default_dtype())
        if not bool(torch.isfinite(targets).all()):
            raise ValueError("targets: found NaN or infinity, expected finite numbers")
        return targets

    def sqrt_hessian_product(self, jacobian: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """Rows J_k / r_k: Lambda = diag(1 / r_k^2), divided by sigma^2 afterwards."""
        return jacobian if self.ratios is None else jacobian / self._ratios(jacobian).unsqueeze(1)

    def sqrt_hessian_transpose_product(self, vectors: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """z_k / r_k of the vectors z (B, K)."""
        return vectors if self.ratios is None else vectors / self._ratios(vectors)

    def standardised(self, targets: Tensor) -> Tensor:
        """y_k / r_k: targets (B, K) in one unit."""
        return targets if self.ratios is None else targets / self._ratios(targets)

    def _ratios(self, like: Tensor) -> Tensor:
        return torch.tensor(self.ratios, dtype=like.dtype, device=like.device)

    def training_loss(self, output: Tensor, targets: Tensor, noise_variance: float = 1.0) -> Tensor:
        """Mean negative log-likelihood of a batch without constants: (y - f)^2 / (2 sigma^2 r^2)."""
        return F.mse_loss(self.standardised(output), self.standardised(targets)) / (2 * noise_variance)

    def log_likelihood(self, mean: Array, variance: Array, targets: Array) -> Array:
        """Predictive log-likelihood of each example (n,), summed over outputs; mean, variance (n, K)."""
        return gaussian_log_likelihood(mean, self.std(variance), targets)

    def predict(self, mean: Array, variance: Array, features: Mapping[str, Array] = NO_FEATURES) -> Prediction:
        """Standard deviations and scores by the serving code, in its precision; features: the feature scores (n,), by
        name."""
        scale = None if self.noise_scale is None else self.noise_scale.astype(np.float32)
        outputs = GraphOutputs(mean.astype(np.float32), variance.astype(np.float32), features, noise_scale=scale)
        return Predictive(self.noises, scoring=self.scoring).undecided(outputs)


Likelihood = Classification | Regression


def with_noise_scale(likelihood: Likelihood, scale: Array | None) -> Likelihood:
    """A regression's for the examples whose noise has this scale (n, K)."""
    return replace(likelihood, noise_scale=scale) if isinstance(likelihood, Regression) else likelihood


def _label_root(mean: Tensor) -> Tensor:
    """sqrt(p (1 - p)) of logits, also where p rounds to 1."""
    return (torch.sigmoid(mean) * torch.sigmoid(-mean)).sqrt()


def _renumbered(targets: Tensor, outputs: int) -> str:
    """How to make class numbers of usual others: 1 to K, and -1 and 1."""
    found = torch.unique(targets).tolist()
    if found == [-1, 1]:
        return "give (targets > 0).long(); "
    return "give targets - 1; " if found[0] >= 1 and found[-1] == outputs else ""


def _refuse_columns(targets: Tensor, outputs: int) -> None:
    """`ValueError` for labels of another number than the model has outputs."""
    columns = targets.shape[1] if targets.dim() == 2 else 1
    if columns not in (1, outputs) and not targets.is_complex() and bool(((targets == 0) | (targets == 1)).all()):
        raise ValueError(
            f"targets: found {columns} columns of 0 and 1 for a model with {outputs} outputs, expected a column for "
            "each output, or class numbers in one dimension"
        )


def _class_numbers(targets: Tensor, batch: int) -> Tensor:
    """Zeros and ones of any type (B,) or (B, 1) as integers (B,); anything else as it is."""
    if tuple(targets.shape) == (batch, 1):
        targets = targets.squeeze(1)
    binary = not targets.is_complex() and bool(((targets == 0) | (targets == 1)).all())
    return targets.long() if binary else targets


def likelihood_of(
    task: Task, outputs: int, sigma_noise: float | None = None, temperature: float = 1.0, most_rows: int = 64
) -> Likelihood:
    """The likelihood of a task; regression has no temperature and all its rows, the others no noise."""
    if task == "regression":
        return Regression(outputs, sigma_noise)
    kind = Multilabel if task == "multilabel" else Classification
    return kind(outputs, temperature, most_rows)


def are_labels(targets: Tensor, batch: int, outputs: int) -> bool:
    """Whether targets are several labels an example, (B, K) of 0 and 1 for K >= 2 outputs.

    `ValueError` where each example has exactly one: they may be classes, too.
    """
    binary = not targets.is_complex() and bool(((targets == 0) | (targets == 1)).all())
    if outputs < 2 or tuple(targets.shape) != (batch, outputs) or not binary:
        return False
    if bool((targets.sum(1) == 1).all()):
        raise ValueError(
            f"targets: found a single 1 in each row of ({batch}, {outputs}), expected class numbers ({batch},), as of "
            "targets.argmax(1); for labels of which an example may have several or none, give likelihood='multilabel'"
        )
    return True


def class_log_likelihood(probabilities: Array, targets: Array) -> Array:
    """log p(y_n), (n,); probabilities are kept above the smallest normal float."""
    chosen = probabilities[np.arange(len(targets)), targets]
    values: Array = np.log(np.maximum(chosen, np.finfo(np.float64).tiny))
    return values


def each_gaussian_log_likelihood(mean: Array, std: Array, targets: Array) -> Array:
    """log N(y_nk; mean_nk, std_nk^2), (n, K)."""
    z = (np.asarray(targets, np.float64) - mean) / std
    values: Array = -0.5 * np.square(z) - np.log(std) - 0.5 * math.log(2 * math.pi)
    return values


def gaussian_log_likelihood(mean: Array, std: Array, targets: Array) -> Array:
    """log N(y_n; mean_n, diag std_n^2), summed over outputs, (n,)."""
    values: Array = each_gaussian_log_likelihood(mean, std, targets).sum(axis=-1)
    return values
