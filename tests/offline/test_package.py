"""What `from offline import ...` offers: every name is there, and torch is loaded only for those that need it."""

import subprocess
import sys

import pytest

import offline
from offline.runtime.distributed import DistributedError


@pytest.mark.parametrize("name", offline.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(offline, name).__name__ == name


def test_the_exceptions_are_those_that_are_raised() -> None:
    assert offline.DistributedError is DistributedError
    assert issubclass(offline.FactorizationError, ValueError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'offline' has no attribute 'nothing'"):
        _ = offline.nothing


def test_the_configuration_alone_needs_no_torch() -> None:
    text = "import sys; from offline import FitConfig, InputSpec; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
