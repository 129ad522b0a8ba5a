"""A complete manifest for a synthetic bundle, and manifests as JSON."""

import dataclasses
import json
import math
from typing import Any

import numpy.typing as npt

from demur.service.bundle import (
    Calibration,
    Graph,
    InputSpec,
    Manifest,
    Outcomes,
    ParameterSlice,
    Posterior,
    Prior,
    RejectedShare,
    Selection,
    SetScore,
    Tried,
    Verification,
)
from demur.service.format.manifest_json import to_json

Array = npt.NDArray[Any]
OPSET = 20
SEARCHED_PRIOR = Prior(
    method="budget",
    precision=1.0,
    used=1.0,
    budget=0.05,
    tried=Tried((0.1, 1.0, 10.0), (-0.5, -0.25, -0.2), (-9.0, -8.0, -8.5), -0.21),
)
REJECTION = (RejectedShare("noise", 0.75, 40), RejectedShare("constant", 1.0, 40))


def make_manifest(
    *,
    outputs: int,
    parameter_count: int,
    size: int,
    spec: InputSpec,
    scores: Array,
    regression: bool = False,
    several: bool = False,
    alpha: float = 0.1,
    **changes: Any,
) -> Manifest:
    """A complete manifest. Its threshold comes from `slow_threshold`; a classification has all optional parts but added
    weights, which go with another link."""
    compared: dict[str, Any] = {} if regression else {"explanation": "by hand", "within": ("weight",)}
    manifest = Manifest(
        name="synthetic",
        version="1",
        task="regression" if regression else "multilabel" if several else "classification",
        input=spec,
        outputs=outputs,
        class_names=None if regression else tuple(f"{'label' if several else 'class'} {k}" for k in range(outputs)),
        parameter_count=parameter_count,
        subnetwork_size=size,
        selection=Selection(
            strategy="random",
            options={"note": "by hand", "share": 0.5},
            seed=0,
            dead_weights=None,
            parameters=(ParameterSlice(name="weight", shape=(parameter_count,), offset=0, chosen=size),),
            **compared,
        ),
        prior=Prior(method="fixed", precision=1.0, used=1.0) if regression else SEARCHED_PRIOR,
        posterior=Posterior(kind="cholesky", size=size, jitter=0.0),
        sigma_noise=0.5 if regression else None,
        temperature=1.0,
        map_temperature=changes.get("temperature", 1.0),
        link="gaussian" if regression else "probit-sigmoid" if several else "probit",
        opset=OPSET,
        graph=Graph(outputs * 2 * size),
        calibration=Calibration(
            score="epistemic_std" if regression else "predictive_entropy",
            examples=len(scores),
            false_reject_rate=alpha,
            threshold=slow_threshold(scores, alpha),
            outcomes=described_outcomes(regression or several),
        ),
        verification=Verification(examples=4, tolerance=1e-4, mean_error=1e-7, variance_error=1e-7),
        rejection=None if regression else REJECTION,
        metrics={"calibration_log_likelihood": -0.25},
        libraries={"python": "3.11"},
        warnings=("made by hand",),
    )
    return dataclasses.replace(manifest, **changes)


def described_outcomes(without_sets: bool) -> Outcomes:
    """What a manifest says of outcomes without examples that tune."""
    return Outcomes(0, None if without_sets else SetScore(penalty=0.0, unpenalised=1))


def document(manifest: Manifest) -> dict[str, Any]:
    """The manifest as parsed JSON."""
    data: dict[str, Any] = json.loads(json.dumps(to_json(manifest)))
    return data


def slow_threshold(scores: Array, alpha: float) -> float:
    """The largest calibration score whose own p-value is above alpha; by counting."""
    n = len(scores)
    accepted = [float(s) for s in scores if (1 + sum(other >= s for other in scores)) / (n + 1) > alpha]
    return max(accepted) if accepted and len(accepted) < n else math.inf
