"""service/format/manifest.py: every value that cannot be right is refused, and the message says where it stands."""

from typing import Any

import pytest

from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from tests.support.bundles import Synthetic
from tests.support.manifests import document
from tests.support.tamper import Place, replaced

WRONG: list[tuple[Place, Any, str]] = [
    (("name",), "", "name: found ''"),
    (("name",), "a/b", "name: found 'a/b'"),
    (("name",), "..", "name: found '..'"),
    (("version",), ".", "version: found '.'"),
    (("name",), "x" * 201, "1 to 200 characters"),
    (("version",), "1/2", "version: found '1/2'"),
    (("task",), "ranking", "task: found 'ranking'"),
    (("task",), "regression", "link"),
    (("outputs",), 1, "outputs: found 1"),
    (("outputs",), "3", "outputs: found '3', expected a whole number"),
    (("outputs",), True, "outputs: found True"),
    (("outputs",), 3.0, "outputs: found 3.0"),
    (("outputs",), 2**15 + 1, "outputs: found 32769, expected at most 32768"),
    (("class_names",), ["a", "b"], "expected null or 3 names"),
    (("class_names",), ["a", "b", "b"], "names that differ"),
    (("class_names",), "abc", "class_names"),
    (("input", "shape"), [0], "input.shape"),
    (("input", "shape"), [-4], "input.shape"),
    (("input", "shape"), 4, "input.shape: found 4, expected a list"),
    (("input", "shape"), [1] * 32, "input.shape: found 32 dimensions, expected at most 31"),
    (("input", "shape"), [2**20, 2**20], "input.shape: found (1048576, 1048576), expected at most"),
    (("input", "shape"), [2**62] * 4, "input.shape"),
    (("input", "dtype"), "float64", "input.dtype: found 'float64'"),
    (("input", "feature_names"), ["a"], "input.feature_names: found 1 names"),
    (("subnetwork_size",), 0, "subnetwork_size: found 0"),
    (("subnetwork_size",), 1000, "subnetwork_size: found 1000"),
    (("posterior", "size"), 5, "posterior.size: found 5, expected subnetwork_size, 6"),
    (("posterior", "kind"), "diagonal", "posterior.kind"),
    (("prior", "used"), 0.0, "prior.used: found 0.0, expected a number greater than 0"),
    (("prior", "precision"), -1.0, "prior.precision: found -1.0"),
    (("temperature",), 0.0, "temperature: found 0.0"),
    (("sigma_noise",), 1.0, "sigma_noise: found 1.0"),
    (("link",), "gaussian", "link: found 'gaussian'"),
    (("calibration", "false_reject_rate"), 0.0, "false_reject_rate"),
    (("calibration", "false_reject_rate"), 1.0, "false_reject_rate"),
    (("calibration", "examples"), -1, "calibration.examples: found -1"),
    (
        ("calibration", "score"),
        "epistemic_std",
        "calibration.score: found 'epistemic_std'",
    ),
    (("rejection",), [], "rejection: found (), expected null, or shares under names that differ"),
    (("rejection", 1, "name"), "noise", "expected null, or shares under names that differ"),
    (("rejection", 0, "name"), "", "rejection[0].name: found ''"),
    (("rejection", 0, "share"), 1.5, "rejection[0].share: found 1.5"),
    (("rejection", 0, "share"), -0.5, "rejection[0].share: found -0.5"),
    (("rejection", 0, "examples"), 0, "rejection[0].examples: found 0"),
    (("metrics",), {"accuracy": "high"}, "metrics.accuracy: found 'high', expected a finite number"),
    (("warnings",), [1], "warnings[0]: found 1, expected text"),
    (("files", "model.onnx"), {"sha256": "", "bytes": "1"}, "files.model.onnx.bytes"),
    (("format",), "zip", "format"),
    (("prior", "method"), "guess", "prior.method: found 'guess'"),
    (("prior", "method"), "fixed", "prior.budget: found 0.05, expected null for method 'fixed'"),
    (("prior", "budget"), None, "prior.budget: found None, expected 0 or a positive number for method 'budget'"),
    (("prior", "budget"), -0.1, "prior.budget: found -0.1"),
    (("prior", "budget"), "0.05", "prior.budget: found '0.05', expected a finite number"),
    (("prior", "tried", "precisions"), [], "prior.tried.precisions: found ()"),
    (("prior", "tried", "precisions", 0), 0.0, "prior.tried.precisions"),
    (("prior", "tried", "precisions"), [1.0, 2.0], "prior.tried.log_likelihood"),
    (("prior", "tried", "log_likelihood"), [-1.0], "prior.tried.log_likelihood: found (-1.0,)"),
    (("prior", "tried", "log_evidence"), [], "prior.tried.log_evidence: found (), expected null or 3 finite numbers"),
    (("prior", "tried", "log_evidence", 1), None, "prior.tried.log_evidence[1]"),
    (("prior", "tried", "plain_log_likelihood"), float("-inf"), "prior.tried.plain_log_likelihood"),
    (("selection", "within"), "weight", "selection.within"),
    (("selection", "explanation"), 1, "selection.explanation: found 1, expected text"),
    (("posterior", "kind"), "low-rank", "posterior.kind: found 'low-rank', expected 'cholesky'"),
    (("posterior", "jitter"), -1e-9, "posterior.jitter: found -1e-09"),
    (("posterior", "rank"), 3, "posterior.rank"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=lambda item: str(item)[:40])
def test_a_wrong_value_is_named(classification: Synthetic, place: Place, value: Any, message: str) -> None:
    data = replaced(document(classification.manifest), place, value)
    with pytest.raises(ManifestError) as caught:
        manifest_from_json(data)
    assert message in str(caught.value)
