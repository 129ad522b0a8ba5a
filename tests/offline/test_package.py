"""What `from probity.offline import ...` offers: every name is there, and torch is loaded only for those that need
it."""

import subprocess
import sys

import pytest

import probity.offline
from probity.offline.runtime.distributed import DistributedError


@pytest.mark.parametrize("name", probity.offline.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(probity.offline, name).__name__ == name


def test_the_exceptions_are_those_that_are_raised() -> None:
    assert probity.offline.DistributedError is DistributedError
    assert issubclass(probity.offline.FactorizationError, ValueError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'probity\.offline' has no attribute 'nothing'"):
        _ = probity.offline.nothing


def test_the_configuration_alone_needs_no_torch() -> None:
    text = "import sys; from probity.offline import FitConfig, InputSpec; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
