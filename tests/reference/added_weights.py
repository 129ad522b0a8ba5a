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


def standard(value: float, training: list[float], weight: float = 1.0) -> float:
    """w (a - E[a]) / sqrt(Var[a]), within 50, of deviations that are no less than 0.02."""
    mean = sum(training) / len(training)
    deviation = math.sqrt(sum((other - mean) ** 2 for other in training) / len(training))
    return min(max(weight * (value - mean) / max(deviation, 0.02), -50.0), 50.0)


def log_length(h: Array) -> float:
    return math.log(max(math.sqrt(sum(value * value for value in h)), 1e-12))


def texture(x: Array) -> Array:
    """Of one example, an image (C, H, W) or a series (T, F): log length, and log roughness along the longest axis."""
    total = math.sqrt(sum(value * value for value in x.ravel()))
    axes = (1, 2) if x.ndim == 3 else (0, 1)
    longest = max(reversed(axes), key=lambda axis: x.shape[axis])
    step, values = math.prod(x.shape[longest + 1 :]), list(x.ravel())
    squares = sum((after - before) ** 2 for before, after in zip(values, values[step:], strict=False))
    return np.array([math.log(total), math.log(math.sqrt(squares)) - math.log(total)])


def scaled_directions(training: list[Array], usual: float | None) -> Callable[[list[Array]], Array]:
    """The function from the parts (F_l,) of one example to its z; training (N, F_l) each. usual: the root mean square
    length of the first part, where that is a row of standardised columns."""

    def direction(layer: int, h: Array) -> Array:
        return unit(h) if layer or usual is None else soft_unit(h, usual)

    known = []
    for layer, others in enumerate(training):
        units = [direction(layer, other) for other in others]
        centre = sum(units) / len(units)
        scale = math.sqrt(sum(float((one - centre) @ (one - centre)) for one in units) / len(units))
        known.append((centre, scale if scale > 1e-4 else 1.0))

    def z(parts: list[Array]) -> Array:
        pairs = zip(parts, known, strict=True)
        return np.concatenate(
            [(direction(layer, h) - centre) / scale for layer, (h, (centre, scale)) in enumerate(pairs)]
        )

    return z


def standard_columns(training: Array) -> Callable[[Array], Array]:
    """The function from the inputs (F,) of one example to the same in deviations; training (N, F)."""
    known = []
    for column in training.T:
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
        known.append((mean, deviation if deviation > 1e-6 * abs(mean) else max(1.0, 1e-6 * abs(mean))))

    def columns(h: Array) -> Array:
        pairs = zip(h, known, strict=True)
        return np.array([min(max((value - mean) / deviation, -1e15), 1e15) for value, (mean, deviation) in pairs])

    return columns


def usual_length(rows: Array) -> float:
    """The root mean square of their lengths; 1 where all columns are constant."""
    found = math.sqrt(sum(float(row @ row) for row in rows) / len(rows))
    return found if found > 1e-6 else 1.0


def length_of(h: Array, usual: float | None) -> float:
    """log |h|, or |h| / usual."""
    return log_length(h) if usual is None else math.sqrt(sum(value * value for value in h)) / usual


def soft_unit(h: Array, usual: float) -> Array:
    """sqrt(2) h / sqrt(|h|^2 + usual^2)."""
    return math.sqrt(2) * h / math.sqrt(sum(value * value for value in h) + usual**2)


def log_mahalanobis(z: Array, training: list[Array]) -> float:
    """log sqrt(z^T (E[z z^T] + r I)^-1 z), r a hundredth of the mean variance; training (F,) each."""
    covariance = sum(np.outer(other, other) for other in training) / len(training)
    ridge = 0.01 * np.trace(covariance) / len(z)
    square = z @ np.linalg.solve(covariance + (ridge if ridge > 0 else 1.0) * np.eye(len(z)), z)
    return math.log(max(math.sqrt(square), 1e-12))


def standard_lengths(training: list[Array], usual: float | None) -> Callable[[list[Array]], list[float]]:
    """The function from the parts (F_l,) of one example to the coordinates that their lengths are."""
    known = []
    for layer, part in enumerate(training):
        own = None if layer else usual
        known.append((own, 0.3 if own is None else 1.0, [length_of(other, own) for other in part]))

    def lengths(parts: list[Array]) -> list[float]:
        found = []
        for h, (own, weight, others) in zip(parts, known, strict=True):
            one = standard(length_of(h, own), others, weight)
            found.append(one if own is None else max(one, 0.0))
        return found

    return lengths


def coordinates(
    training: list[Array],
    directions: Array,
    *,
    with_rest: bool,
    with_lengths: bool,
    inputs: bool = False,
    texture: bool = False,
) -> Callable[[list[Array]], Array]:
    """The function from the parts (F_l,) of one example to its t; texture: the first part is that."""
    textures, training = (training[0], training[1:]) if texture else (np.zeros((1, 0)), training)
    if inputs:
        columns = standard_columns(training[0])
        training = [np.array([columns(other) for other in training[0]]), *training[1:]]
    usual = usual_length(training[0]) if inputs else None
    z_of = scaled_directions(training, usual)

    known_z = [z_of([h[n] for h in training]) for n in range(len(training[0]))]
    alike = -math.inf

    def outside(z: Array) -> float:
        return max(log_length(z - directions @ (directions.T @ z)), alike)

    if min(outside(z) for z in known_z[1::2]) < math.log(0.1):
        alike = math.log(0.01)
    between = [outside(z) for z in known_z[1::2]]
    width = training[0].shape[1]
    own_inputs = [z[:width] for z in known_z]
    combined = [log_mahalanobis(z, own_inputs[::2]) for z in own_inputs[1::2]] if inputs else []
    lengths_of = standard_lengths(training, usual)

    def t(parts: list[Array]) -> Array:
        seen, parts = (parts[0], parts[1:]) if texture else (np.zeros(0), parts)
        if inputs:
            parts = [columns(parts[0]), *parts[1:]]
        z = z_of(parts)
        found = list(directions.T @ z)
        if with_rest:
            found.append(standard(outside(z), between))
        if inputs:
            found.append(max(standard(log_mahalanobis(z[:width], own_inputs[::2]), combined), 0.0))
        found += lengths_of(parts) if with_lengths else []
        found += [standard(value, list(known), 0.3) for value, known in zip(seen, textures.T, strict=True)]
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
