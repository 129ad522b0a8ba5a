"""What `from demur.offline import ...` offers: every name is there, and torch is loaded only for those that need
it."""

import subprocess
import sys

import pytest

import demur.offline
from demur.offline.runtime.distributed import DistributedError


@pytest.mark.parametrize("name", demur.offline.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(demur.offline, name).__name__ == name


def test_the_exceptions_are_those_that_are_raised() -> None:
    assert demur.offline.DistributedError is DistributedError
    assert issubclass(demur.offline.FactorizationError, ValueError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'demur\.offline' has no attribute 'nothing'"):
        _ = demur.offline.nothing


def test_the_configuration_alone_needs_no_torch() -> None:
    text = "import sys; from demur.offline import FitConfig, InputSpec; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
