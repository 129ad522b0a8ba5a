"""docs/deploying.md and docs/security.md say what the files in deploy/ say."""

import re
import tomllib

import yaml

from demur.service.decoding import decoder_bytes
from demur.service.inference.graph import CHUNK_BYTES
from demur.service.settings import PREFIX, Settings
from tests.support.deployment import COMPOSE, NGINX_TEXT, ROOT
from tests.support.pages import blocks

DEPLOYING, SECURITY = ROOT / "docs/deploying.md", ROOT / "docs/security.md"
COMMANDS = [content.splitlines() for language, content in blocks(DEPLOYING) if language == "console"]


def test_kubernetes_runs_the_image_that_the_page_builds() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    built = [re.search(r"^docker build --tag (\S+)", line) for block in COMMANDS for line in block]
    tags = [match[1] for match in built if match is not None]
    assert tags == [f"demur:{version}", f"demur-offline:{version}"]
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/demur.yaml").read_text())
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == tags[0]
    for tag in tags:
        assert f"docker build -t {tag} " in (ROOT / "Dockerfile").read_text()


def test_the_page_fits_the_bundle_that_compose_serves() -> None:
    (fit, _) = next(block for block in COMMANDS if "docker compose up --build" in block)
    served = re.search(r":-\./(\S+)\}", COMPOSE["services"]["demur"]["volumes"][0]["source"])
    assert served is not None
    assert fit.startswith("demur fit ")
    assert f" --out {served[1]} " in f"{fit} "


def test_the_page_names_the_proxy_s_directives_and_their_values() -> None:
    rows = re.findall(rf"^\| `{PREFIX}(\w+)` \| `(\w+)` \| (\d+)", DEPLOYING.read_text(), re.MULTILINE)
    assert [name.lower() for name, _, _ in rows] == ["max_body_bytes", *["request_timeout_seconds"] * 2]
    for name, directive, value in rows:
        found = re.search(rf"^ *{directive} (?:(\d+) )?(\d+)[smk];", NGINX_TEXT, re.MULTILINE)
        assert found is not None
        assert int(value) == int(found[1] or 1) * int(found[2])
        assert name.lower() in Settings.model_fields


def test_the_page_s_bounds_of_memory_are_those_of_the_service() -> None:
    settings, text = Settings(), SECURITY.read_text().replace("\n", " ")
    decoder, processors = decoder_bytes(settings), COMPOSE["services"]["demur"]["cpus"]
    for figure, expected in {
        r"at most ([\d,]+) MiB per processor": decoder,
        r"batches \(([\d,]+) MiB per processor\)": CHUNK_BYTES,
        r"requests take at most ([\d,]+) MiB": 3 * settings.max_pending_bytes + processors * decoder,
        r"and batches ([\d,]+) MiB": processors * CHUNK_BYTES,
        r"Add ([\d,]+) MiB for each further": decoder + CHUNK_BYTES,
    }.items():
        found = re.search(figure, text)
        assert found is not None, figure
        assert int(found[1].replace(",", "")) * 2**20 == expected
    assert f"give the service {COMPOSE['services']['demur']['mem_limit'].removesuffix('g')} GiB" in text
