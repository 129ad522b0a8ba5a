"""A signed bundle, and a file of trusted keys."""

from pathlib import Path

import pytest

from demur.service.security.signing import sign_bundle
from tests.support.signing import KEY, pem


@pytest.fixture
def signed(folder: Path) -> Path:
    sign_bundle(folder, KEY)
    return folder


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """A file of trusted keys with words between them."""
    file = tmp_path / "trusted.pem"
    file.write_text(f"the release key\n{pem(KEY)}")
    return file
