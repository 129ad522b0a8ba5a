"""The variance of added weights is that of the slow definitions, and behaves as a distance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.changes import stream
from demur.offline.features.activations import INPUTS, LARGEST, SMALLEST, texture
from demur.offline.features.added_weights import (
    LINK_FEATURES,
    SCORE_FEATURES,
    AddedWeights,
    FeatureSettings,
    FeatureVariance,
)
from demur.offline.features.coordinates import Columns, converted
from demur.offline.features.layers import FeatureLayers
from tests.reference import added_weights as reference
from tests.reference.added_weights import added_variance, coordinates, random_features

SMALL = FeatureSettings(24, 6, precision=2e-4, length_scale=0.7)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def activations(*shapes: tuple[int, int], seed: int = 1) -> list[Tensor]:
    """ReLU activations of some layers."""
    draw = generator(seed)
    return [torch.randn(shape, generator=draw, dtype=torch.float64).relu() + 0.01 for shape in shapes]


def hardly_outside(count: int, seed: int) -> Tensor:
    """Of as many activations as there are directions; others are active for one example in four, and little so."""
    many, few, share = activations((count, 20), (count, 30), (count, 1), seed=seed)
    return torch.cat([many, 0.1 * few * share * (torch.arange(count)[:, None] % 4 == seed)], dim=1)


CASES: dict[str, tuple[list[Tensor], list[Tensor]]] = {
    "one layer": (activations((30, 5)), activations((4, 5), seed=2)),
    "three layers": (activations((30, 5), (30, 3), (30, 7)), activations((4, 5), (4, 3), (4, 7), seed=2)),
    "more activations than directions": (activations((300, 50)), activations((4, 50), seed=2)),
    "fewer examples than activations": (activations((20, 60)), activations((4, 60), seed=2)),
    "a layer that is always alike": (
        [torch.ones(30, 3, dtype=torch.float64), *activations((30, 5))],
        [torch.ones(4, 3, dtype=torch.float64), *activations((4, 5), seed=2)],
    ),
    "a layer that is alike but for rounding": (
        [1 + 1e-7 * activations((30, 3))[0], *activations((30, 5))],
        [1 + 1e-7 * activations((4, 3), seed=2)[0], *activations((4, 5), seed=2)],
    ),
    "no activation at all": (activations((30, 5)), [torch.zeros(4, 5, dtype=torch.float64)]),
    "two examples": (activations((2, 4)), activations((4, 4), seed=2)),
    "next to nothing outside the directions": ([hardly_outside(300, 1)], [hardly_outside(4, 2)]),
}


FORMS: dict[str, dict[str, Any]] = {
    "directions": {"with_lengths": False},
    "lengths": {"with_lengths": True},
    "inputs": {"with_lengths": True, "inputs": 0},
    "texture": {"with_lengths": True, "texture": True},
    "both": {"with_lengths": True, "inputs": 0, "texture": True},
}


SHAPES = {"grey": (1, 6, 5), "colour": (3, 4, 4), "a line": (2, 1, 7), "series": (6, 3), "volume": (1, 3, 3, 3)}


def size_and_roughness(lengths: Tensor) -> Tensor:
    """The two logarithms that a texture (B, 2) is."""
    length, change = lengths.clamp(SMALLEST, LARGEST).log().T
    return torch.stack([length, change - length], dim=1)


@pytest.mark.parametrize("shape", [shape for name, shape in SHAPES.items() if name != "volume"], ids=str)
def test_texture_is_that_of_the_definition(shape: tuple[int, ...]) -> None:
    x = torch.randn(4, *shape, generator=generator(), dtype=torch.float64) + 0.5
    expected = [reference.texture(example) for example in x.numpy()]
    np.testing.assert_allclose(size_and_roughness(texture(x)).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_texture_tells_size_and_roughness_apart(shape: tuple[int, ...]) -> None:
    x = torch.rand(5, *shape, generator=generator(), dtype=torch.float64) + 0.1
    (length, rough), (longer, as_rough) = (size_and_roughness(texture(factor * x)).T for factor in (1, 10))
    torch.testing.assert_close(longer - length, torch.full((5,), np.log(10), dtype=torch.float64))
    torch.testing.assert_close(as_rough, rough)
    assert float((size_and_roughness(texture(torch.full_like(x, 0.3)))[:, 1] - rough).max()) < -10


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-10, 1.0, 1e30, 3e38])
def test_texture_is_finite_in_float32(value: float) -> None:
    x = torch.rand(4, 2, 5, 5, generator=generator())
    for images in (value * x, torch.full_like(x, value), x + value):
        assert bool(torch.isfinite(size_and_roughness(texture(images))).all())


def test_a_texture_alone_makes_an_example_far_away() -> None:
    h, draw = clusters(), generator(5)
    usual = torch.randn(len(h), 2, generator=draw, dtype=torch.float64).exp()
    settings = FeatureSettings(256, 64)
    parts = [usual[:300], h[:300]]
    fitted = FeatureVariance.fit(parts, settings, with_lengths=True, texture=True, generator=generator())
    near = fitted.of([usual[300:], h[300:]])
    for axis in (0, 1):
        far = usual[300:].clone()
        far[:, axis] *= np.exp(20)
        assert float(fitted.of([far, h[300:]]).min()) > float(near.quantile(0.95))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_the_variance_is_that_of_the_definition(case: str, form: str) -> None:
    training, new = CASES[case]
    if FORMS[form].get("texture"):
        count = len(training[0])
        training, new = [*activations((count, 2), seed=6), *training], [*activations((4, 2), seed=7), *new]
    fitted = FeatureVariance.fit(training, SMALL, **FORMS[form], generator=generator())
    (directions,), (with_rest,) = fitted.coordinates.directions, fitted.coordinates.rests
    described = FORMS[form] | {"inputs": "inputs" in FORMS[form]}

    def arrays(parts: list[Tensor]) -> list[np.ndarray]:
        textures = [size_and_roughness(parts[0]).numpy()] if FORMS[form].get("texture") else []
        return [*textures, *(h.numpy() for h in parts[len(textures) :])]

    t_of = coordinates(arrays(training), directions.numpy(), with_rest=with_rest, **described)

    def phi_of(parts: list[Tensor], n: int) -> np.ndarray:
        t = t_of([h[n] for h in arrays(parts)])
        return random_features(t, fitted.frequencies.numpy(), fitted.phases.numpy())

    known = [phi_of(training, n) for n in range(len(training[0]))]
    expected = [added_variance(phi_of(new, n), known, SMALL.precision, SMALL.kept) for n in range(len(new[0]))]
    np.testing.assert_allclose(fitted.of(new).squeeze(1).numpy(), expected, rtol=1e-6, atol=1e-9)
    phi = np.sqrt(2 / SMALL.features) * fitted.cosines(fitted.coordinates.of(new)).numpy()
    np.testing.assert_allclose(phi, [phi_of(new, n) for n in range(len(new[0]))], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", ["directions", "lengths"])
def test_rounding_is_no_distance(form: str) -> None:
    """Behind units that no input activates, examples are alike: served in float32, they must not be far apart."""
    training, new = (1 + 1e-7 * h for h in activations((30, 5), (4, 5)))
    fitted = FeatureVariance.fit([training], SMALL, **FORMS[form], generator=generator())
    served = converted(fitted, torch.zeros(())).of([new.float()])
    np.testing.assert_allclose(served.numpy(), fitted.of([new]).numpy(), atol=1e-5)


def test_an_example_that_is_hardly_outside_the_directions_has_digits() -> None:
    training, new = hardly_outside(300, 1), hardly_outside(60, 2)
    fitted = FeatureVariance.fit([training], SMALL, **FORMS["directions"], generator=generator())
    assert fitted.coordinates.rests == (True,)
    served = converted(fitted, torch.zeros(())).coordinates.of([new.float()])
    np.testing.assert_allclose(served.numpy(), fitted.coordinates.of([new]).numpy(), atol=1e-4)
    assert float(fitted.coordinates.of([new])[:, -1].std()) > 0.1


def test_the_length_scale_is_in_units_of_the_median_distance() -> None:
    h, settings = activations((30, 5)), FeatureSettings(24, 6)
    once, twice = (
        FeatureVariance.fit(h, replace(settings, length_scale=scale), with_lengths=False, generator=generator())
        for scale in (1.0, 2.0)
    )
    torch.testing.assert_close(twice.frequencies, once.frequencies / 2)


@pytest.mark.parametrize("case", CASES)
def test_directions_are_orthonormal(case: str) -> None:
    training, _ = CASES[case]
    fitted = FeatureVariance.fit(training, SMALL, with_lengths=False, generator=generator())
    (u,) = fitted.coordinates.directions
    torch.testing.assert_close(u.T @ u, torch.eye(u.shape[1], dtype=u.dtype))


def clusters(count: int = 400) -> Tensor:
    """Two clusters of directions."""
    draw = generator(3)
    centres = torch.tensor([[1.0, 0.2, 0.2, 0.1], [0.1, 0.2, 1.0, 0.3]], dtype=torch.float64)
    noise = 0.05 * torch.randn(count, 4, generator=draw, dtype=torch.float64)
    return centres[torch.arange(count) % 2] + noise


def test_small_near_the_training_data_and_one_far_away() -> None:
    h = clusters()
    fitted = FeatureVariance.fit([h[:300]], FeatureSettings(256, 64), with_lengths=False, generator=generator())
    foreign = torch.tensor([[0.1, -1.0, 0.0, 0.2], [0.0, 0.0, 0.0, -1.0]], dtype=torch.float64)
    assert float(fitted.of([h[300:]]).median()) < 0.02
    assert float(fitted.of([foreign]).min()) > 0.5  # up to the noise of 256 random features


def test_length_counts_only_where_it_is_asked_for() -> None:
    h = clusters()
    without, with_it = (
        FeatureVariance.fit([h[:300]], FeatureSettings(256, 64), with_lengths=lengths, generator=generator())
        for lengths in (False, True)
    )
    new = h[300:]
    torch.testing.assert_close(without.of([10 * new]), without.of([new]))
    assert float(with_it.of([10 * new]).min()) > 10 * float(with_it.of([new]).median())


def table(count: int = 600) -> Tensor:
    """Rows of four columns in units of their own, of which the last two nearly follow from the first two."""
    draw = generator(4)
    free = torch.randn(count, 2, generator=draw, dtype=torch.float64)
    bound = torch.stack([free.sum(1), free[:, 0] - free[:, 1]], dim=1)
    rows = torch.cat([free, bound + 0.05 * torch.randn(count, 2, generator=draw, dtype=torch.float64)], dim=1)
    return rows * torch.tensor([1e-3, 1.0, 50.0, 1e4]) + torch.tensor([0.0, 3.0, -20.0, 1e5])


def of_inputs(rows: Tensor) -> FeatureVariance:
    return FeatureVariance.fit([rows], FeatureSettings(256, 64), with_lengths=True, inputs=0, generator=generator())


def test_columns_that_do_not_belong_together_are_far_away() -> None:
    rows = table()
    fitted, new = of_inputs(rows[:500]), rows[500:]
    usual = fitted.of([new]).quantile(0.95)
    each_alone = torch.stack([column.roll(7 * place) for place, column in enumerate(new.T)], dim=1)
    for foreign in (each_alone, new.flip(1), 10 * new, 0.01 * new, torch.zeros_like(new)):
        assert float((fitted.of([foreign]) > usual).double().mean()) > 0.95


@pytest.mark.parametrize("columns", [1, 2, 4, 8])
def test_rows_next_to_the_mean_are_usual(columns: int) -> None:
    """They have hardly a direction, and a length whose logarithm no other row has."""
    rows = 5 + 2 * torch.randn(3000, columns, generator=generator(9), dtype=torch.float64)
    fitted, new = of_inputs(rows[:1000]), rows[1000:]
    found, length = fitted.of([new]).squeeze(1), torch.linalg.vector_norm(new - 5, dim=1)
    usual = fitted.of([rows[:1000]]).quantile(0.95)
    inner, outer = length < length.quantile(0.02), length > length.quantile(0.98)
    assert float((found[inner] > usual).double().mean()) < 0.1
    assert float(fitted.of([torch.full((1, columns), 5.0, dtype=torch.float64)])) < float(usual)
    assert float((found[outer] > usual).double().mean()) > 0.5


def test_the_unit_of_a_column_changes_nothing() -> None:
    rows, units = table(), torch.tensor([1e6, 1e-3, 7.0, 1e-9], dtype=torch.float64)
    new = rows[500:]
    torch.testing.assert_close(of_inputs(units * rows[:500]).of([units * new]), of_inputs(rows[:500]).of([new]))


@pytest.mark.parametrize("inputs", [None, 0], ids=["activations", "inputs"])
@pytest.mark.parametrize("factor", [1e-30, 1e-10, 1.0, 1e10, 1e25, 1e38])
def test_finite_in_float32_whatever_the_activations(factor: float, inputs: int | None) -> None:
    h, settings = clusters(), FeatureSettings(64, 16)
    fitted = FeatureVariance.fit([h[:300]], settings, with_lengths=True, inputs=inputs, generator=generator())
    served = converted(fitted, torch.zeros(()))
    found = served.of([(factor * h[300:]).float()])
    assert bool(torch.isfinite(found).all())
    assert bool((found >= 0).all())


@pytest.mark.parametrize("factor", [1e-30, 1e-10, 1e10, 1e25, 1e38])
def test_one_layer_that_is_far_off_leaves_the_others_alone(factor: float) -> None:
    """All lengths are divided by at once: one that float32 cannot hold must not reach the other layers."""
    h, settings = clusters(), FeatureSettings(64, 16)
    fitted = FeatureVariance.fit([h[:300], h[:300]], settings, with_lengths=False, generator=generator())
    served, new = converted(fitted, torch.zeros(())), h[300:].float()
    z, _ = served.coordinates.standard([factor * new, new])
    assert bool(torch.isfinite(served.of([factor * new, new])).all())
    torch.testing.assert_close(z[:, 4:], served.coordinates.standard([new, new])[0][:, 4:])


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    model.eval()
    return model


def fitted_to(model: nn.Sequential, x: Tensor) -> AddedWeights:
    with torch.no_grad():
        last = model[:4](x)
        first = model[:2](x)
    layers = FeatureLayers(("4",), (INPUTS, "2", "4"))
    return AddedWeights.fit(layers, {"4": last, "2": first, INPUTS: x}, seed=0)


def test_the_same_from_the_network_in_one_batch_or_several_and_in_either_precision() -> None:
    model, x = network(), torch.randn(60, 3, generator=generator())
    fitted = fitted_to(model, x)
    everything = fitted.of_all(model, x, rows=7)
    with torch.no_grad():
        exact, exact_psi = fitted.of(model.double(), x.double())
        single, single_psi = fitted.to(x).of(model.float(), x)
    for found, precise, rounded in zip(
        everything, (exact[:, 0], exact[:, 1:], exact_psi), (single[:, 0], single[:, 1:], single_psi), strict=True
    ):
        np.testing.assert_allclose(found, precise, rtol=1e-3, atol=1e-6)  # activations in float32
        np.testing.assert_allclose(rounded, precise, rtol=1e-3, atol=1e-5)


def test_of_a_linear_model_the_variance_of_the_outputs_knows_single_columns() -> None:
    """Rows next to the mean have no direction: without it, one of zeros alone would be far from all others."""
    x = torch.randn(300, 2, generator=generator())
    fitted = AddedWeights.fit(FeatureLayers((INPUTS,), (INPUTS,)), {INPUTS: x}, seed=0)
    assert fitted.variances.coordinates.columns is not None
    rows = torch.tensor([[0.0, 0.0], [1e-3, 0.0], [0.0, -1e-3], [3e3, 0.0]], dtype=torch.float64)
    middle, *beside, far = fitted.variances.of([rows])[:, 0].tolist()
    assert beside == pytest.approx([middle, middle], rel=1e-2)
    assert middle < 0.1 * far


def test_the_seed_decides() -> None:
    model, x = network(), torch.randn(60, 3, generator=generator())
    first, again = (fitted_to(model, x).of_all(model, x, rows=60) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


# What the link and the score read: the order of the layers, and where the network's inputs are, differ.
READ = {
    "the link reads the last": (("4",), (INPUTS, "2", "4")),
    "both the same": (("2", "4"), ("2", "4")),
    "the link another one": (("2", "4"), (INPUTS, "4")),
    "both the inputs": ((INPUTS,), (INPUTS, "2")),
    "the link alone the inputs": ((INPUTS,), ("2",)),
    "nothing in common": (("4",), ("2",)),
}


@pytest.mark.parametrize("case", READ)
def test_both_variances_are_those_of_each_alone(case: str) -> None:
    """Computed side by side, they share what is the same for both."""
    model, x = network().double(), torch.randn(60, 3, generator=generator(), dtype=torch.float64)
    layers = FeatureLayers(*READ[case])
    read = {INPUTS: x, "2": model[:2](x).detach(), "4": model[:4](x).detach()}
    both = AddedWeights.fit(layers, read, seed=0)
    new = 3 * torch.randn(20, 3, generator=generator(2), dtype=torch.float64)
    parts = {INPUTS: new, "2": model[:2](new).detach(), "4": model[:4](new).detach()}
    with torch.no_grad():
        found, psi = both.of(model, new)
    for column, (own, settings, lengths) in enumerate(
        [(layers.link, LINK_FEATURES, False), (layers.score, SCORE_FEATURES, True)]
    ):
        paths = [path for path in layers.paths if path in own]
        alone = FeatureVariance.fit(
            [read[path] for path in paths],
            settings,
            with_lengths=lengths,
            inputs=paths.index(INPUTS) if INPUTS in paths else None,
            generator=stream(0, column + 1),
        )
        expected, own_psi = alone.at(alone.coordinates.of([parts[path] for path in paths]))
        torch.testing.assert_close(found[:, [column]], expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(psi, own_psi, atol=1e-10, rtol=0)


def test_a_column_whose_spread_is_rounding_hides_no_other() -> None:
    """Times of a short collection, in seconds since 1970: in single precision they are 128 apart."""
    draw = generator()
    times = (1.7e9 + 1500 * torch.rand(200, generator=draw)).float().double()
    h = torch.stack([torch.randn(200, generator=draw).double(), times], dim=1)
    standard = reference.standard_columns(h.numpy())
    expected = np.stack([standard(row) for row in h.numpy()])
    found = Columns.fit(h)(h).numpy()
    np.testing.assert_allclose(found, expected / reference.usual_length(expected), rtol=1e-9)
    assert found[:, 0].std() > 0.5
