"""`--model-dir`, as KServe gives it: a bundle, a folder with one, or with several."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.bundles import Synthetic
from tests.support.server import RUNNING, refusal, starting

KSERVE = "--model_name=digits", "--http_port=0"


@pytest.mark.parametrize("inside", [".", "1"])
def test_one_bundle_is_served_under_the_given_name(classification: Synthetic, tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "models"
    shutil.copytree(classification.path, folder / inside)
    (folder / "README.md").write_text("# Digits")
    with starting(f"--model_dir={folder}", *KSERVE, DEMUR_BUNDLE="/bundle") as server:
        server.port = int(server.wait_for(RUNNING)[1])
        found = json.loads(server.request("GET", "/v2/models/digits")[2])
        assert (found["name"], found["versions"]) == ("digits", ["1"])
        assert json.loads(server.request("GET", "/v2/models/digits/ready")[2]) == {"name": "digits", "ready": True}


def test_several_keep_their_names(classification: Synthetic, images: Synthetic, tmp_path: Path) -> None:
    for place, one in enumerate((classification, images)):
        shutil.copytree(one.path, tmp_path / str(place))
    assert "model_name: found a folder of bundles, expected one bundle" in refusal(f"--model_dir={tmp_path}", *KSERVE)
    with starting(f"--model_dir={tmp_path}", DEMUR_READY_REQUIRES="all") as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_for("serving .* version")


@pytest.mark.parametrize("others", [("bundle",), ("--models", "models")])
def test_it_stands_alone(others: tuple[str, ...]) -> None:
    assert "--model-dir: found bundles or --models too" in refusal("--model-dir", "folder", *others)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    assert "no such folder" in refusal(f"--model_dir={tmp_path / 'nowhere'}")
