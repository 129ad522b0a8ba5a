"""Where the dashboards, the rules and their page are, and what stands in them."""

import json
from pathlib import Path

from docs.dashboards.drift import DRIFT
from docs.dashboards.health import HEALTH
from docs.dashboards.kubernetes import dashboard_maps, monitoring
from docs.dashboards.panels import Dashboard, panels_of
from docs.dashboards.uncertainty import UNCERTAINTY

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/grafana/dashboards"
RULES = ROOT / "deploy/prometheus/recording.yml"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
KUBERNETES = ROOT / "deploy/kubernetes"
PAGE = ROOT / "docs/monitoring.md"
DASHBOARDS = (HEALTH, UNCERTAINTY, DRIFT)


def dashboards() -> dict[Path, str]:
    """Each file and its text."""
    return {FOLDER / f"{one.name}.json": json.dumps(one.to_json(), indent=2) + "\n" for one in DASHBOARDS}


def kubernetes() -> dict[Path, str]:
    """The same rules and dashboards for Kubernetes."""
    maps = dashboard_maps({path.stem: text for path, text in dashboards().items()})
    rules = monitoring([RULES, ALERTS])
    return {KUBERNETES / "dashboards.yaml": maps, KUBERNETES / "operators/prometheus.yaml": rules}


def parts() -> dict[str, str]:
    """The generated parts of the page: a table for each dashboard."""
    return {f"panels of {one.name}": _table(one) for one in DASHBOARDS}


def _table(dashboard: Dashboard) -> str:
    rows = [("panel", "what it shows"), ("---", "---"), *((p.title, p.description) for p in panels_of(dashboard))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
