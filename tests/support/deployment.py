"""The files in deploy/ and around them, read once for the tests; and a reader of the Dockerfile."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from demur.service.decoding import decoder_bytes
from demur.service.inference.graph import CHUNK_BYTES
from demur.service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE_FILE = ROOT / "docker-compose.yml"
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
NGINX = ROOT / "deploy/nginx/nginx.conf"

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SCRAPES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
RULE_FILES = [PROMETHEUS / name for name in SCRAPES["rule_files"]]
RULES: list[dict[str, Any]] = [
    rule for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted((GRAFANA / "dashboards").glob("*.json"))
}
PANELS: list[dict[str, Any]] = [
    panel for dashboard in DASHBOARDS.values() for panel in dashboard["panels"] if panel["type"] != "row"
]
NGINX_TEXT = NGINX.read_text()
# What Grafana puts in place of the variables, here for a scrape several times a second.
VARIABLES = {"$__rate_interval": "5s", "$window": "10m", "$job": ".+", "$instance": ".+"}
FOR_MODELS = 512 * 2**20  # of the service's memory: for the process itself, its models and a trial
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}


def memory_of_requests(processors: int) -> int:
    """What requests and their batches may take at most with the defaults, in bytes: the bound in docs/security.md."""
    settings = Settings()
    return 3 * settings.max_pending_bytes + processors * (decoder_bytes(settings) + CHUNK_BYTES)


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def variables(dashboard: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def filled(expression: str, model: str) -> str:
    """The expression of a panel as Grafana sends it."""
    for name, value in (VARIABLES | {"$model": model}).items():
        expression = expression.replace(name, value)
    return expression


@dataclass(frozen=True)
class Stage:
    """One stage of the Dockerfile: what it starts from and its instructions, (keyword, rest of the line)."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def _stages() -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}  # those before the first stage, by which stages may name their base
    lines = without_comments(DOCKERFILE.read_text()).replace("\\\n", " ").splitlines()
    for keyword, rest in (line.split(maxsplit=1) for line in lines if line.strip()):
        if keyword == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(arguments.get(base.strip("${}"), base))
        elif not stages:
            assert keyword == "ARG", f"{keyword} {rest}"
            argument, _, value = rest.partition("=")
            arguments[argument] = value
        else:
            list(stages.values())[-1].instructions.append((keyword, re.sub(r"\s+", " ", rest)))
    return stages


STAGES = _stages()


def _lineage(name: str) -> list[Stage]:
    """A stage, the stages it starts from, and those it copies from."""
    if name not in STAGES:
        return []
    stage = STAGES[name]
    sources = [source for keyword, rest in stage.instructions for source in re.findall(r"^--from=(\S+)", rest)]
    return [stage, *(found for other in (stage.base, *sources) for found in _lineage(other))]


def values(stage: str, keyword: str) -> list[str]:
    return [rest for found, rest in STAGES[stage].instructions if found == keyword]


def environment(stage: str) -> dict[str, str]:
    """What a stage sets, over what the stages set that it starts from."""
    base = STAGES[stage].base
    inherited = environment(base) if base in STAGES else {}
    return inherited | dict(pair.split("=", 1) for line in values(stage, "ENV") for pair in line.split())


def copied(stage: str) -> set[str]:
    """What a target takes from the repository, in all its stages."""
    copies = [rest.split() for found in _lineage(stage) for keyword, rest in found.instructions if keyword == "COPY"]
    return {source.rstrip("/") for words in copies if not words[0].startswith("--from=") for source in words[:-1]}


def commands(stage: str) -> list[str]:
    return [rest for found in _lineage(stage) for keyword, rest in found.instructions if keyword == "RUN"]
