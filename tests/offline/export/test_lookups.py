"""A value that chooses an entry of a table is refused by the graph wherever torch refuses it, and nowhere else."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demur.offline import ExportError, FitConfig, fit_bundle
from demur.offline.export.standalone.file import export_standalone
from demur.offline.export.standalone.verify import open_model
from demur.service.inference.graph import NetworkError
from demur.service.inference.predictor import Predictor
from tests.support.together import try_together

pytestmark = pytest.mark.usefixtures("short_fits")

ROWS = 10
CONFIG = FitConfig(
    subnetwork_size=20,
    selection="random",
    prior_precision=1.0,
    false_reject_rate=0.1,
    device="cpu",
)


class Looked(nn.Module):
    """Vectors by `look`, from a table of ten, and a head."""

    def __init__(self, look: Callable[[Tensor, Tensor], Tensor], width: int = 8) -> None:
        super().__init__()
        self.table, self.head, self.look = nn.Parameter(torch.randn(ROWS, 4)), nn.Linear(width, 3), look

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.look(x, self.table))
        return found


def _spread(x: Tensor, table: Tensor) -> Tensor:
    """The table (4, ROWS) of each example."""
    return table.T.expand(x.shape[0], 4, ROWS)


LOOKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "embedding": (lambda x, table: F.embedding(x, table).flatten(1), 8),
    "embedding with padding": (lambda x, table: F.embedding(x, table, padding_idx=0).flatten(1), 8),
    "bag": (lambda x, table: F.embedding_bag(x, table, mode="sum"), 4),
    "bag of the largest": (lambda x, table: F.embedding_bag(x, table, mode="max"), 4),
    "one-hot": (lambda x, table: (F.one_hot(x, ROWS).float() @ table).flatten(1), 8),
    "index_select": (lambda x, table: table.index_select(0, x.flatten()).reshape(x.shape[0], 8), 8),
    "torch.embedding": (lambda x, table: torch.embedding(table, x).flatten(1), 8),
    "gather by names": (
        lambda x, table: torch.gather(input=_spread(x, table), dim=2, index=x[:, None].expand(-1, 4, -1)).flatten(1),
        8,
    ),
    "index_select by names": (
        lambda x, table: torch.index_select(input=table, dim=0, index=x.flatten()).reshape(x.shape[0], 8),
        8,
    ),
    "scatter": (lambda x, table: torch.zeros(x.shape[0], ROWS).scatter(1, x, 1.0) @ table, 4),
    "scatter_": (lambda x, table: torch.zeros(x.shape[0], ROWS).scatter_(1, x, 1.0) @ table, 4),
    "scatter_add": (
        lambda x, table: torch.zeros(x.shape[0], ROWS).scatter_add(1, x, torch.ones(x.shape[0], 2)) @ table,
        4,
    ),
    "gather": (lambda x, table: _spread(x, table).gather(2, x[:, None].expand(-1, 4, -1)).flatten(1), 8),
}


class Beside(nn.Module):
    """Several ways of looking up, each in a table of its own by two columns of its own, and a head."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.tables = nn.ParameterList(torch.randn(ROWS, 4) for _ in names)
        self.looks = [LOOKS[name][0] for name in names]
        self.head = nn.Linear(sum(LOOKS[name][1] for name in names), 3)

    def forward(self, x: Tensor) -> Tensor:
        columns = zip(self.looks, x.split(2, 1), self.tables, strict=True)
        found: Tensor = self.head(torch.cat([look(own, table) for look, own, table in columns], 1))
        return found


def bundle_of(model: nn.Module, inputs: Tensor, out: Path, config: FitConfig = CONFIG) -> Predictor:
    targets = torch.randint(0, 3, (len(inputs),), generator=torch.Generator().manual_seed(1))
    fit_bundle(model.eval(), (inputs, targets), out, calibration_loader=(inputs[:40], targets[:40]), config=config)
    return Predictor.load(out)


def tokens(columns: int = 2) -> Tensor:
    return torch.randint(0, ROWS, (80, columns), generator=torch.Generator().manual_seed(0))


def check_refusals(names: Sequence[str], folder: Path) -> None:
    """In one network: a column belongs to one way of looking up, which an assertion names."""
    torch.manual_seed(0)
    model, good = Beside(names), tokens(2 * len(names))
    config = CONFIG.model_copy(update={"subnetwork_size": 20 * len(names)})
    predictor = bundle_of(model, good, folder / "bundle", config)
    with torch.no_grad():
        np.testing.assert_allclose(predictor.predict(good.numpy()).mean, model(good), atol=1e-5)
    export_standalone(folder / "bundle", folder / "model.onnx")
    session = open_model((folder / "model.onnx").read_bytes())
    for at, name in enumerate(names):
        column = 2 * at + 1
        for beyond in (-1, -ROWS, -ROWS - 1, ROWS, 2**40):
            bad = good.clone()
            bad[3, column] = beyond
            told = [
                _refusal((IndexError, RuntimeError), model, bad),
                _refusal((NetworkError,), predictor.predict, bad.numpy()),
                _refusal((Exception,), session.run, None, {"inputs": bad.numpy()}),
            ]
            assert all(told), (name, beyond, told)
            expected = rf"the value {beyond} at \[3\]\[{column}\], expected one from 0 to 9"
            assert re.search(expected, told[1]), (name, beyond, told)
            assert "INVALID_ARGUMENT" in told[2], (name, beyond, told)


def _refusal(kinds: tuple[type[Exception], ...], call: Callable[..., object], *arguments: object) -> str:
    """What is said; "" where nothing is refused."""
    try:
        call(*arguments)
    except kinds as error:
        return str(error)
    return ""


QUICK = ["embedding"]


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param([name for name in LOOKS if name not in QUICK], marks=pytest.mark.slow, id="others")]
)
def test_a_token_beyond_either_end_is_refused_and_named(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    try_together(lambda some: check_refusals(some, tmp_path_factory.mktemp("lookups")), names)


@pytest.mark.slow
def test_a_column_of_a_table_that_is_looked_up_is_refused_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Looked(lambda x, table: torch.cat([F.embedding(x[:, 0].long(), table), x[:, 1:]], 1), 6)
    good = torch.cat([tokens()[:, :1].float(), torch.randn(80, 2, generator=torch.Generator().manual_seed(2))], 1)
    predictor = bundle_of(model, good, tmp_path / "bundle")
    for beyond in (-1.0, 10.0, 1e6):
        bad = good.clone()
        bad[3, 0] = beyond
        with pytest.raises(NetworkError, match=rf"the value {beyond:.0f} at \[3\]\[0\], expected one from 0 to 9"):
            predictor.predict(bad.numpy())
    with torch.no_grad():  # as torch: cut off, not rounded
        between = good.clone()
        between[:, 0] = torch.linspace(-0.9, 9.9, 80)
        np.testing.assert_allclose(predictor.predict(between.numpy()).mean, model(between), atol=1e-5)


def test_a_network_that_counts_from_one_is_fitted_and_exported(tmp_path: Path) -> None:
    """It has no answer for zeros, which a service would try first."""
    torch.manual_seed(0)
    model, good = Looked(lambda x, table: F.embedding(x - 1, table).flatten(1)), tokens() + 1
    predictor = bundle_of(model, good, tmp_path / "bundle")
    with torch.no_grad():
        np.testing.assert_allclose(predictor.predict(good.numpy()).mean, model(good), atol=1e-5)
    export_standalone(tmp_path / "bundle", tmp_path / "model.onnx")
    with pytest.raises(NetworkError, match="looks up the value -1"):
        predictor.predict(np.zeros((1, 2), np.int64))


@pytest.mark.slow
def test_brackets_count_from_the_end_as_in_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, good = Looked(lambda x, table: table[x].flatten(1)), tokens()
    predictor = bundle_of(model, good, tmp_path / "bundle")
    with torch.no_grad():
        np.testing.assert_allclose(predictor.predict((good - ROWS).numpy()).mean, model(good), atol=1e-5)
    for beyond in (-ROWS - 1, ROWS):
        with pytest.raises(
            NetworkError, match=rf"looks up the value {beyond} at \[0\]\[0\], expected one that its table has"
        ):
            predictor.predict(torch.full((1, 2), beyond).numpy())


@pytest.mark.slow
def test_a_looked_up_column_beside_wide_ones_is_exported_alone(tmp_path: Path) -> None:
    """Each column of the examples that try the model is drawn from its own range."""
    torch.manual_seed(0)
    model = Looked(lambda x, table: torch.cat([F.embedding(x[:, 0].long(), table), x[:, 1:]], 1), 6)
    good = torch.cat([tokens()[:, :1].float(), 50 * torch.randn(80, 2, generator=torch.Generator().manual_seed(2))], 1)
    predictor = bundle_of(model, good, tmp_path / "bundle")
    assert predictor.manifest.input.range is not None
    export_standalone(tmp_path / "bundle", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size


@pytest.mark.slow
def test_a_bag_of_padding_alone_is_zeros(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Looked(lambda x, table: F.embedding_bag(x, table, mode="max", padding_idx=0), 4)
    good = tokens()
    good[3] = 0
    predictor = bundle_of(model, good, tmp_path / "bundle")
    with torch.no_grad():
        np.testing.assert_allclose(predictor.predict(good.numpy()).mean, model(good), atol=1e-5)


def test_weights_that_change_while_they_are_looked_up_are_refused_by_name(tmp_path: Path) -> None:
    model = Looked(lambda x, table: F.embedding(x, table.detach().clone(), max_norm=1.0).flatten(1))
    with pytest.raises(ExportError, match="found max_norm, which changes the weights"):
        bundle_of(model, tokens(), tmp_path / "bundle")
