"""demur/__init__.py: one import for users, and a word on what is missing."""

import importlib.metadata
import subprocess
import sys

import pytest

import demur
import demur.offline
import demur.service
import demur.service.client


@pytest.mark.parametrize("name", demur.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(demur, name) is not None
    assert name in dir(demur)


def test_the_names_are_those_of_the_packages() -> None:
    assert demur.fit_bundle is demur.offline.fit_bundle
    assert demur.Predictor is demur.service.Predictor
    assert demur.Client is demur.service.client.Client
    assert demur.__version__ == importlib.metadata.version("demur")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'demur' has no attribute 'nothing'"):
        _ = demur.nothing


@pytest.mark.parametrize(
    ("name", "missing", "extra"), [("fit_bundle", "torch", "offline"), ("Client", "httpx", "client")]
)
def test_what_needs_an_extra_says_which(name: str, missing: str, extra: str) -> None:
    """In a process of its own: torch cannot be imported twice."""
    text = f"import sys; sys.modules[{missing!r}] = None; import demur; demur.{name}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: demur.{name} needs {missing}, ")
    assert last.endswith(f"in a checkout of Demur, pip install '.[{extra}]'")


def test_the_import_alone_loads_neither_torch_nor_onnxruntime() -> None:
    text = "import demur, sys; print(sorted({'torch', 'onnxruntime', 'httpx', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
