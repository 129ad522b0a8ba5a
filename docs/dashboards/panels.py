"""Panels, rows and dashboards as Grafana's JSON."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from docs.dashboards.queries import JOB

Json = dict[str, Any]
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 8, 24
NO_EXAMPLES = "no examples"
COLOURS = {"/^2/": "green", "/^4/": "orange", "/^5/": "red"}


@dataclass(frozen=True)
class Query:
    """One PromQL expression and its legend."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """`description` says what the panel answers; `unit` is one of Grafana's."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    most: float | None = None
    least: float | None = 0.0
    stacked: bool = False
    by_status: bool = False


@dataclass(frozen=True)
class Row:
    """Panels under one heading, three in a line."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One file. `variables`: names beside those that every dashboard has."""

    name: str
    title: str
    question: str
    rows: tuple[Row, ...]
    variables: tuple[str, ...] = field(default=("model", "window"))

    def to_json(self) -> Json:
        """What Grafana reads."""
        return {
            "uid": f"demur-{self.name}",
            "title": self.title,
            "description": self.question,
            "tags": ["demur"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "timezone": "browser",
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "links": [_link()],
            "annotations": {"list": [_versions(), _alerts()]},
            "templating": {"list": [VARIABLES[name] for name in ("datasource", "job", "instance", *self.variables)]},
            "panels": _placed(self.rows),
        }


def _placed(rows: tuple[Row, ...]) -> list[Json]:
    placed, top = list[Json](), 0
    for row in rows:
        placed.append(
            {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _place(COLUMNS, 1, 0, top)}
        )
        top += 1
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, COLUMNS // WIDTH)
            placed.append(_panel(panel) | {"gridPos": _place(WIDTH, HEIGHT, column * WIDTH, top + line * HEIGHT)})
        top += HEIGHT * -(-len(row.panels) // (COLUMNS // WIDTH))
    return [{"id": number, **panel} for number, panel in enumerate(placed, 1)]


def _place(width: int, height: int, x: int, y: int) -> dict[str, int]:
    return {"h": height, "w": width, "x": x, "y": y}


def _panel(panel: Panel) -> Json:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": {
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(letter, query) for letter, query in zip("ABCDEFGHIJKL", panel.queries, strict=False)],
    }


def _defaults(panel: Panel) -> Json:
    bounds = {"min": panel.least, "max": panel.most}
    return {
        "unit": panel.unit,
        "noValue": NO_EXAMPLES,
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "axisPlacement": "auto",
            "scaleDistribution": {"type": "linear"},
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        },
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }


def _overrides(panel: Panel) -> list[Json]:
    """Statuses in the colours of their kind, and whatever is no measurement as a dashed line."""
    dashed = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}
    found: list[Json] = [{"matcher": {"id": "byRegexp", "options": "/by design|threshold/"}, "properties": [dashed]}]
    if panel.by_status:
        for pattern, colour in COLOURS.items():
            fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
            found.append({"matcher": {"id": "byRegexp", "options": pattern}, "properties": [fixed]})
    return found


def _target(letter: str, query: Query) -> Json:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "range": True,
        "instant": False,
        "editorMode": "code",
    }


def _link() -> Json:
    """To the other dashboards, with the same time and variables."""
    return {
        "type": "dashboards",
        "title": "Demur",
        "tags": ["demur"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _versions() -> Json:
    """A mark where a version begins to serve."""
    served = f"max by (name, version) (demur_model_info{{{JOB}}})"
    before = f"max by (name, version) (demur_model_info{{{JOB}}} offset 2m)"
    return _annotation("Model versions", f"{served} unless {before}", "{{name}} {{version}} began to serve", "blue")


def _alerts() -> Json:
    expression = 'max by (alertname, severity) (ALERTS{alertname=~"Demur.+", alertstate="firing"})'
    return _annotation("Alerts", expression, "{{alertname}} ({{severity}})", "red")


def _annotation(name: str, expression: str, text: str, colour: str) -> Json:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expression,
        "step": "30s",
        "titleFormat": name,
        "textFormat": text,
        "useValueForTime": False,
    }


def _listed(name: str, label: str, query: str, **more: Any) -> Json:
    """A variable with the values of a label. `refresh` 2: also when the time range changes."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        **more,
    }


_EVERY: Json = {"includeAll": True, "multi": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"}}
WINDOWS = ("10m", "30m", "1h", "6h", "1d")
VARIABLES: dict[str, Json] = {
    "datasource": {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    },
    "job": _listed("job", "Job", "label_values(demur_http_requests_in_flight, job)", **_EVERY),
    "instance": _listed(
        "instance", "Instance", 'label_values(demur_http_requests_in_flight{job=~"$job"}, instance)', **_EVERY
    ),
    "model": _listed("model", "Model", 'label_values(demur_model_info{job=~"$job"}, name)'),
    "window": {
        "name": "window",
        "label": "Shares over",
        "type": "interval",
        "query": ",".join(WINDOWS),
        "auto": False,
        "current": {"selected": True, "text": "30m", "value": "30m"},
        "options": [{"selected": one == "30m", "text": one, "value": one} for one in WINDOWS],
        "hide": 0,
        "refresh": 2,
        "skipUrlSync": False,
    },
}


def panels_of(dashboard: Dashboard) -> list[Panel]:
    """Every panel, in order."""
    return [*chain.from_iterable(row.panels for row in dashboard.rows)]
