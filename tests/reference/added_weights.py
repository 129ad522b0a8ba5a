"""Added weights: coordinates, random features and the variance of their posterior, one example and number at a time."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def unit(h: Array) -> Array:
    """h / |h|; of zeros, zeros."""
    length = math.sqrt(sum(value * value for value in h))
    return h / max(length, 1e-12)


def standard(value: float, training: list[float]) -> float:
    """(a - E[a]) / sqrt(Var[a]), within 50 deviations, none of which is less than 0.02."""
    mean = sum(training) / len(training)
    deviation = math.sqrt(sum((other - mean) ** 2 for other in training) / len(training))
    return min(max((value - mean) / max(deviation, 0.02), -50.0), 50.0)


def log_length(h: Array) -> float:
    return math.log(max(math.sqrt(sum(value * value for value in h)), 1e-12))


def scaled_directions(training: list[Array]) -> Callable[[list[Array]], Array]:
    """The function from the parts (F_l,) of one example to its z; training (N, F_l) each."""
    known = []
    for others in training:
        units = [unit(other) for other in others]
        centre = sum(units) / len(units)
        scale = math.sqrt(sum(float((one - centre) @ (one - centre)) for one in units) / len(units))
        known.append((centre, scale if scale > 1e-12 else 1.0))

    def z(parts: list[Array]) -> Array:
        return np.concatenate([(unit(h) - centre) / scale for h, (centre, scale) in zip(parts, known, strict=True)])

    return z


def standard_columns(training: Array) -> Callable[[Array], Array]:
    """The function from the inputs (F,) of one example to the same in deviations; training (N, F)."""
    known = []
    for column in training.T:
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
        known.append((mean, deviation if deviation > 1e-6 * abs(mean) else 1.0))

    def columns(h: Array) -> Array:
        pairs = zip(h, known, strict=True)
        return np.array([min(max((value - mean) / deviation, -1e15), 1e15) for value, (mean, deviation) in pairs])

    return columns


def log_mahalanobis(z: Array, training: list[Array]) -> float:
    """log sqrt(z^T (E[z z^T] + r I)^-1 z), r a hundredth of the mean variance; training (F,) each."""
    covariance = sum(np.outer(other, other) for other in training) / len(training)
    ridge = 0.01 * np.trace(covariance) / len(z)
    square = z @ np.linalg.solve(covariance + (ridge if ridge > 0 else 1.0) * np.eye(len(z)), z)
    return math.log(max(math.sqrt(square), 1e-12))


def coordinates(
    training: list[Array], directions: Array, *, with_rest: bool, with_lengths: bool, inputs: bool = False
) -> Callable[[list[Array]], Array]:
    """The function from the parts (F_l,) of one example to its t."""
    if inputs:
        columns = standard_columns(training[0])
        training = [np.array([columns(other) for other in training[0]]), *training[1:]]
    z_of = scaled_directions(training)

    def outside(z: Array) -> float:
        return log_length(z - directions @ (directions.T @ z))

    known_z = [z_of([h[n] for h in training]) for n in range(len(training[0]))]
    between = [outside(z) for z in known_z[1::2]]
    width = training[0].shape[1]
    own_inputs = [z[:width] for z in known_z]
    combined = [log_mahalanobis(z, own_inputs[::2]) for z in own_inputs[1::2]] if inputs else []
    weights = [1.0 if inputs and layer == 0 else 0.3 for layer in range(len(training))]
    lengths = [[log_length(other) for other in others] for others in training]

    def t(parts: list[Array]) -> Array:
        if inputs:
            parts = [columns(parts[0]), *parts[1:]]
        z = z_of(parts)
        found = list(directions.T @ z)
        if with_rest:
            found.append(standard(outside(z), between))
        if inputs:
            found.append(standard(log_mahalanobis(z[:width], own_inputs[::2]), combined))
        if with_lengths:
            triples = zip(weights, parts, lengths, strict=True)
            found += [weight * standard(log_length(h), known) for weight, h, known in triples]
        return np.array(found)

    return t


def random_features(t: Array, frequencies: Array, phases: Array) -> Array:
    """phi; frequencies (T, R), phases (R,)."""
    count = len(phases)
    return np.array([math.sqrt(2 / count) * math.cos(t @ frequencies[:, r] + phases[r]) for r in range(count)])


def added_variance(phi: Array, training: list[Array], precision: float, kept: int) -> float:
    """rho phi^T (C + rho I)^-1 phi, with the leading eigenpairs of C alone."""
    curvature = sum(np.outer(other, other) for other in training) / len(training)
    values, vectors = np.linalg.eigh(curvature)
    leading = sum(values[i] * np.outer(vectors[:, i], vectors[:, i]) for i in range(len(values))[-kept:])
    return float(precision * phi @ np.linalg.solve(leading + precision * np.eye(len(phi)), phi))
