"""The files in deploy/ and around them, read once for the tests; and a reader of the Dockerfile."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE_FILE = ROOT / "docker-compose.yml"
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
NGINX = ROOT / "deploy/nginx/nginx.conf"

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SCRAPES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/probity.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
NGINX_TEXT = NGINX.read_text()
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@dataclass(frozen=True)
class Stage:
    """One stage of the Dockerfile: what it starts from and its instructions, (keyword, rest of the line)."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def _stages() -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    lines = without_comments(DOCKERFILE.read_text()).replace("\\\n", " ").splitlines()
    for keyword, rest in (line.split(maxsplit=1) for line in lines if line.strip()):
        if keyword == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(base)
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
