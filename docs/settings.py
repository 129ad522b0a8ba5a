"""`python -m docs.settings`: write docs/settings.md from the service's settings.

What a setting does and its default come from `service.settings.Settings`; when to change it stands here.
"""

from pathlib import Path
from typing import Any

from service.settings import PREFIX, Settings

PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = f"""# Settings of the service

<!-- Written by `make docs` from service/settings.py and docs/settings.py: change those. -->

Every setting is an environment variable with the prefix `{PREFIX}`. `probity serve` also has the options `--models`,
`--host` and `--port`, which win over the environment.

* An unknown variable with the prefix ends the start with an error. Variables that Kubernetes makes for a Service named
  `probity-...` are ignored.
* An empty `{PREFIX}API_KEYS_FILE` or `{PREFIX}TRUSTED_KEYS` is an error: leave the variable out to serve without it.
* With several workers, every limit on queues, bodies and memory holds for each of them.
* [Serving](serving.md) explains how the settings act together, [Security](security.md) those for keys and proxies.
"""
# When to change each setting, in the sections of the page.
WHEN = {
    "Models": {
        "bundle": "To serve bundles named one by one, where they are not arguments of `probity serve`.",
        "models": "To serve a folder to which bundles are added.",
        "default_model": "Always with several models: else the answer of `/predict` depends on the order of loading.",
        "watch_seconds": "When bundles are added, replaced or removed while the service runs.",
        "repository_api": "When a client such as Triton's manages the models. Needs one worker.",
        "ready_requires": "`all`: no traffic until every model is loaded. `any`: one broken bundle costs no traffic.",
        "trial_seconds": "When a large bundle takes longer than this to load and predict.",
        "trial_bytes": "When other programs need the memory that is free at the moment of loading.",
    },
    "Network and processes": {
        "host": "`0.0.0.0` in a container, or where the proxy runs on another machine.",
        "port": "When 8000 is taken.",
        "workers": "When requests are small and one process cannot use all processors, or to survive a hung batch.",
        "hang_seconds": "Lower, to replace a hung worker sooner.",
    },
    "Computation": {
        "threads": "When the automatic choice is wrong for your network: measure both.",
        "concurrency": "Together with the threads, or to leave processors to other programs.",
        "max_batch_size": "Lower, for shorter batches and so a lower latency of small requests.",
        "max_queue_delay_seconds": "A few milliseconds, when batches are small and throughput matters most.",
        "jacobian_bytes": "Higher for larger batches of a network with many outputs or weights; lower to save memory.",
        "interval_level": "When clients need a regression interval of another level.",
    },
    "Deadlines and overload": {
        "max_queue_rows": "Lower, so that overload is refused before requests wait long; higher for large requests.",
        "request_timeout_seconds": "To what your clients still wait for.",
        "compute_timeout_seconds": "Higher, when one batch of your network takes this long.",
        "degrade_after_seconds": "When an answer without uncertainty is better than none under overload.",
    },
    "Limits on requests": {
        "max_body_bytes": "When clients send more at once. Change `client_max_body_size` of the proxy too.",
        "max_pending_bytes": "With the memory of the machine: the service takes two to three times as much.",
        "max_header_bytes": "When clients send larger heads, such as long tokens.",
        "max_rows": "When clients send more examples at once.",
        "max_pixels": "When clients send larger images.",
        "max_total_pixels": "When clients send more or larger images at once.",
        "max_input_bytes": "When one request holds more data after decoding.",
    },
    "Slow clients": {
        "header_timeout_seconds": "Rarely: a proxy takes in slow clients.",
        "body_timeout_seconds": "When clients upload over slow lines without a proxy.",
        "write_timeout_seconds": "When clients read over slow lines without a proxy.",
    },
    "Start and end": {
        "drain_seconds": "Behind a load balancer: longer than it takes to notice that readiness says 503.",
        "shutdown_seconds": "At least the time of your longest request; the orchestrator must wait longer still.",
    },
    "Access": {
        "api_keys_file": "When others than your own programs can reach the port.",
        "metrics_public": "`false`, when others can reach the port and Prometheus has a key.",
        "cors_origins": "When pages of another origin call the service from a browser.",
        "trusted_proxies": "When a proxy on another address stands before the service.",
        "trusted_keys": "When others than you can write to the folders of bundles.",
    },
    "Log": {
        "access_log": "`false`, when a proxy logs requests already, or to save time under load.",
        "log_level": "`debug` to look for a fault, `warning` for a quiet log.",
    },
}
UNITS = {
    "seconds": "seconds",
    "bytes": "bytes",
    "pixels": "pixels",
    "rows": "examples",
    "size": "examples",
    "workers": "processes",
    "threads": "threads",
    "concurrency": "batches",
    "level": "probability",
}
COLUMNS = ("variable", "default", "unit", "what it does", "when to change it")


def page() -> str:
    """The whole page; `KeyError` for a setting that no section names."""
    missing = Settings.model_fields.keys() - {name for section in WHEN.values() for name in section}
    if missing:
        raise KeyError(f"docs/settings.py says nothing about {', '.join(sorted(missing))}; add a line to WHEN")
    sections = [f"## {title}\n\n{_table(advice)}" for title, advice in WHEN.items()]
    return "\n".join([INTRODUCTION, *sections])


def _table(advice: dict[str, str]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(_row(name, when) for name, when in advice.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, when: str) -> tuple[str, ...]:
    field = Settings.model_fields[name]
    # log_level is a word
    unit = "" if isinstance(field.default, str) else UNITS.get(name.rpartition("_")[2], "")
    return f"`{PREFIX}{name.upper()}`", _default(field.default, unit), unit, field.description or "", when


def _default(value: Any, unit: str) -> str:
    """As it would be written into the environment."""
    if value is None or value == ():
        return "unset"
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}` ({_readable(value)})" if unit == "bytes" else f"`{value}`"


def _readable(count: int) -> str:
    """16777216 -> 16 MiB."""
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count / 2**10:g} KiB"


if __name__ == "__main__":
    PAGE.write_text(page())
