"""`python -m docs.figures`: write what the files in benchmarks/results say into docs/benchmarks.md.

These are tables of what a reader decides by, and the date and commit of each measurement. benchmarks/results/tables
gets the same in full, and docs/monitoring.md the simulated day.
"""

import json
import math
import statistics
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.core.folders import RESULTS
from benchmarks.core.markdown import Cell, as_csv, number, table
from benchmarks.serving.day.plan import clock
from docs.files_figures import files, files_in_full, files_intervals, files_packages
from docs.marked import update_parts

PAGE = Path(__file__).with_name("benchmarks.md")
MONITORING = Path(__file__).with_name("monitoring.md")
TABLES = RESULTS / "tables"
MEASURED = (
    "baseline",
    "bundles",
    "price",
    "frontier",
    "strangers",
    "files",
    "regression",
    "robustness",
    "scores",
    "guarantees",
    "drift",
    "load",
    "crowd",
    "servers",
    "texts",
    "clients",
    "rpc",
    "cpu",
    "fair",
    "shadow",
    "versions",
    "bulk",
    "soak",
    "day",
    "playground",
)
NETWORKS = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar": "CIFAR-10"}
EVENT_METHODS = ("plain", "temperature", "its own temperature", "default")
METHODS = (
    *("plain network", "best temperature", "distances scale the temperature", "MC dropout, 16 samples"),
    *("ensemble of 5", "last layer, laplace-torch", "subnetwork alone", "default bundle"),
)
# Quantity -> head of the column, and digits.
QUALITY = {
    "usual": ("ordinary", 3),
    "rotation": ("turned", 2),
    "unseen": ("other shifts", 3),
    "auroc": ("AUROC, entropy", 3),
    "score_auroc": ("AUROC, score", 3),
}
VERDICTS = {
    "a temperature over the plain network": ("best temperature", "plain network"),
    "a subnetwork over a temperature": ("subnetwork alone", "best temperature"),
    "added weights over a temperature": ("added weights alone", "best temperature"),
    "both over added weights alone": ("default bundle", "added weights alone"),
    "both over an ensemble of 5, tempered": ("default bundle", "ensemble of 5, best temperature"),
}
ROBUSTNESS = {"cost": "+.4f", "gain": "+.3f", "ece": ".3f"}
RATE, LEVEL, ACCURACY = 0.05, 0.95, 0.95
DAY_HOURS = (0, 4, 8, 12, 16, 20)
Row = dict[str, Any]


def parts() -> dict[str, str]:
    """The generated parts of the page by their names."""
    dates = {f"measured: {name}": measured(name) for name in MEASURED}
    return dates | {part: make(read(name)) for part, (name, make) in MADE.items()}


def parts_of_monitoring() -> dict[str, str]:
    """Those of the page about monitoring: the simulated day."""
    result = read("day")
    return {"alerts of the day": day_alerts(result), "memory of the day": day_memory(result)}


def tables() -> dict[Path, str]:
    """The full tables."""
    return {TABLES / f"{name}.csv": as_csv(make(read(name))) for name, make in FULL.items()}


def read(name: str) -> Row:
    """One file of results."""
    result: Row = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def measured(name: str) -> str:
    """When, on what and on which code."""
    environment = read(name)["environment"]
    date = datetime.fromisoformat(environment["date"])
    when = f"{date.day} {date:%B %Y}, commit `{environment['git_commit'][:7]}`, {environment['cpu']}"
    return f"`python -m benchmarks {name}`, measured on {when}, {environment['cores']} cores.\n"


def baseline(result: Row) -> str:
    """How much faster and smaller than laplace-torch."""
    ratios: dict[str, list[str]] = {}
    for one in result["comparisons"]:  # a fit, then a prediction
        ratios.setdefault(one["scenario"], []).extend(f"{one[what]:.2g}" for what in ("faster", "less_memory"))
    rows = [[scenario, *values] for scenario, values in ratios.items()]
    return table(["times", "faster to fit", "less memory", "faster to predict", "less memory"], rows)


def price(result: Row) -> str:
    """One row a choice of weights."""
    rows = []
    for row in result["rows"]:
        ratios = [one[f"{name}_over_plain"] for name in ("graph", "predict") for one in row["batches"]]
        rows.append([row["name"], f"{row['S']:,} of {row['D']:,}", *(f"{ratio:.2g}" for ratio in ratios)])
    return table(["weights", "S of D", "graph, 1 example", "graph, 16", "prediction, 1", "prediction, 16"], rows)


def frontier(result: Row) -> str:
    """The bundle and its rivals, means over the seeds."""
    rows = []
    for network, methods in result["summary"].items():
        for method in METHODS:
            found = methods[method]
            cells = [_mean(found.get(name), digits) for name, (_, digits) in QUALITY.items()]
            rows.append([f"{NETWORKS[network]}, {method}", f"{found['price']['mean']:.2g}", *cells])
    return table(["", "passes", *(head for head, _ in QUALITY.values())], rows)


def _mean(value: Row | None, digits: int) -> str:
    return "" if value is None or value["mean"] is None else number(value["mean"], digits)


def verdicts(result: Row) -> str:
    """What each part adds to the one before it: paired differences, means and standard errors over the seeds."""
    rows = []
    for network in result["summary"]:
        runs = [run["methods"] for run in result["runs"] if run["network"] == network]
        for label, (method, other) in VERDICTS.items():
            own = [(run[method], run[other]) for run in runs if method in run and other in run]
            cells = [_paired([part(one) - part(two) for one, two in own]) for part in VERDICT_PARTS.values()]
            rows.append([f"{NETWORKS[network]}, {label}", *cells])
    return table(["", *VERDICT_PARTS], rows)


def _paired(values: list[float]) -> str:
    if any(math.isnan(value) for value in values):
        return ""
    error = f"± {statistics.stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else "(one seed)"
    return f"{statistics.mean(values):+.3f} {error}"


def _likelihood(wanted: Callable[[str], bool]) -> Callable[[Row], float]:
    """The mean over the test sets with such names, NaN without any."""

    def mean(row: Row) -> float:
        found = [value for name, value in row["log_likelihood"].items() if wanted(name)]
        return statistics.mean(found) if found else math.nan

    return mean


def frontier_in_full(result: Row) -> list[dict[str, Cell]]:
    """Every method, its means and deviations over the seeds."""
    summary = result["summary"]
    names = dict.fromkeys(name for methods in summary.values() for found in methods.values() for name in found)
    rows: list[dict[str, Cell]] = []
    for network, methods in summary.items():
        for method, found in methods.items():
            row: dict[str, Cell] = {"network": network, "method": method, "seeds": found["seeds"]}
            for name in (name for name in names if name != "seeds"):
                own = found.get(name) or {"mean": None, "std": None}
                row |= {name: own["mean"], f"{name}_std": own["std"]}
            rows.append(row)
    return rows


def strangers(result: Row) -> str:
    """A row for each data set, ordinary and disturbed."""
    rows = []
    for found in result["rows"]:
        for where in ("ordinary", "disturbed"):
            part = found[where]
            gain = f"{part['gain']['mean']:+.3f} ± {part['gain']['error']:.3f}"
            eces = (number(part["ece"][method], 3) for method in ("plain", "temperature", "default"))
            aurocs = (number(part["auroc_wrong"][method] or math.nan, 3) for method in ("temperature", "default"))
            shares = (_percent(share, 0) for share in (part["wrong"], part["rejected"]))
            plain = number(part["log_likelihood"]["plain"], 3)
            default = number(part["log_likelihood"]["default"], 3)
            rows.append(
                [f"{found['data']}, {where}", plain, default, gain, " / ".join(eces), " / ".join(aurocs), *shares]
            )
    head = ["", "plain", "default", "over temperature", "ECE: plain / temperature / default"]
    return table([*head, "AUROC for wrong answers: temperature / default", "wrong", "rejected"], rows)


def regression(result: Row) -> str:
    """A row for each table and method."""
    rows = []
    for found in result["rows"]:
        for method, own in found["methods"].items():
            cells = [_with_error(own, name, digits) for name, digits in (("log_likelihood", 3), ("width", 2))]
            fifths = ", ".join(f"{100 * share:.0f}" for share in own["fifths"])
            used = f" ({own['by_input']} of {found['seeds']} by the input)" if method == "default" else ""
            name = f"{found['data']}, {found['held_out']}, {found['seeds']}"
            rows.append([name, f"{method}{used}", *cells, f"{100 * own['coverage']:.1f}", fifths])
    return table(
        ["table, held out, seeds", "", "log-likelihood", "width", "coverage, %", "by fifths of the prediction"], rows
    )


def _with_error(own: Row, name: str, digits: int) -> str:
    """Nothing where it was not measured."""
    if name not in own:
        return ""
    error = own[f"{name}_error"]
    return number(own[name], digits) + ("" if error is None else f" ± {number(error, digits)}")


def strangers_foreign(result: Row) -> str:
    """What is rejected of obvious foreigners."""
    rows = [
        [found["data"], ", ".join(f"{kind} {_percent(share, 0)}" for kind, share in found["foreign"].items())]
        for found in result["rows"]
    ]
    return table(["", "rejected"], rows)


def strangers_events(result: Row) -> str:
    """What the methods say of rare events."""
    rows = []
    for found in result["rows"]:
        if rare := found["ordinary"].get("events"):
            means = (number(rare["mean"][method], 2) for method in EVENT_METHODS)
            precisions = (number(rare["average_precision"][method], 3) for method in ("temperature", "default"))
            error = number(rare["average_precision_error"], 3)
            rows.append([found["data"], " / ".join(means), f"{' / '.join(precisions)}, difference ± {error}"])
    head = f"mean probability over the true share: {' / '.join(EVENT_METHODS)}"
    return table(["", head, "average precision: temperature / default"], rows)


def robustness(result: Row) -> str:
    """A row for each variation, with the standard error over the seeds of what matters."""
    rows = []
    for found in result["rows"]:
        cells = [f"{found[name]:{form}} ± {found[f'{name}_error']:.3f}" for name, form in ROBUSTNESS.items()]
        rejected = (_percent(found[f"rejected_{name}"], 0) for name in ("usual", "foreign", "least"))
        rows.append([found["label"], *cells, number(found["ece_temperature"], 3), *rejected])
    head = ["", "cost", "gain under shift", "ECE", "ECE, temperature"]
    return table([*head, "rejected: ordinary", "digits", "least of the obvious"], rows)


def scores_in_full(result: Row) -> list[dict[str, Cell]]:
    """Every score and kind of foreign images; fpr: the share of these accepted where 95 % of the others are."""
    return [
        {"network": network, "score": name, "foreign": foreign, "auroc": rates["auroc"], "fpr": rates["fpr"]}
        for network, found in result["summary"].items()
        for name, sets in found.items()
        for foreign, rates in sets.items()
    ]


def guarantees(result: Row) -> str:
    """One level of each guarantee, a row for each data set."""
    rows = []
    for row in result["rows"]:
        one, own = (
            next((kept for kept in row["rates"] if (kept["rate"], kept["rule"]) == (RATE, rule)), None)
            for rule in ("one", "by class")
        )
        assert one is not None
        cells = [f"{_percent(one['mean'], 2)}, {_percent(one['inside'])}"]
        cells += [
            f"{_percent(min(kept['classes']))} to {_percent(max(kept['classes']))}" if own else ""
            for kept in (one, own or one)
        ]
        for kept in (kept for kept in row.get("certificates", ()) if kept["accuracy"] == ACCURACY):
            accepted = "never" if kept["accepted"] is None else _percent(kept["accepted"], 0)
            cells.append(f"{accepted}, {_percent(kept['holds'])}" if kept["accepted"] is not None else accepted)
        for kept in (kept for kept in row.get("sets", ()) if (kept["level"], kept["kind"]) == (LEVEL, "tuned")):
            cells.append(f"{_percent(kept['coverage'])}, {kept['size']:.2f} classes")
        for kept in (kept for kept in row.get("intervals", ()) if kept["level"] == LEVEL):
            cells += ["", f"{_percent(kept['conformal'])}; Gaussian {_percent(kept['gaussian'])}"]
        rows.append([row["name"], *cells])
    head = [
        "",
        "rejected at 5 %",
        "its classes",
        "with a threshold for each",
        "certified for 95 %",
        "sets or intervals, 95 %",
    ]
    return table(head, rows)


def guarantees_in_full(result: Row) -> list[dict[str, Cell]]:
    """Every level: the asked rate, accuracy or coverage, what was found, and the share of splits that it holds in."""
    rows: list[dict[str, Cell]] = []

    def add(name: str, what: str, asked: float, found: float | None, holds: float | None, size: float | None) -> None:
        rows.append({"data": name, "guarantee": what, "asked": asked, "found": found, "holds": holds, "size": size})

    for row in result["rows"]:
        name = row["name"]
        for kept in row["rates"]:
            add(name, f"rejected, {kept['rule']}", kept["rate"], kept["mean"], kept["inside"], None)
        for kept in row.get("certificates", ()):
            add(name, "certified", kept["accuracy"], kept["accepted_accuracy"], kept["holds"], kept["accepted"])
        for kept in row.get("sets", ()):
            add(name, f"sets, {kept['kind']}", kept["level"], kept["coverage"], kept["not_below"], kept["size"])
        for kept in row.get("intervals", ()):
            add(name, "intervals, conformal", kept["level"], kept["conformal"], kept["inside"], None)
            add(name, "intervals, Gaussian", kept["level"], kept["gaussian"], None, None)
    return rows


def drift(result: Row) -> str:
    """Median number of requests until the alarm."""
    rows = [[row["name"], *(_delay(found) for found in row["delays"].values())] for row in result["rows"]]
    return table(["", "betting test", "Kolmogorov-Smirnov", "PSI"], rows)


def few_foreign(result: Row) -> str:
    """The same where few of the examples are foreign, by the number of held-out examples."""
    found = {(one["held_out"], one["busy"], one["one_in"]): one["delays"] for one in result["few_foreign"]}
    shares = sorted({one_in for _, _, one_in in found})
    rows = [
        [f"{held_out:,}, {'beside a busy client' if busy else 'alone'}"]
        + [_delay(found[held_out, busy, one_in]) for one_in in shares]
        for held_out, busy in dict.fromkeys((held_out, busy) for held_out, busy, _ in found)
    ]
    return table(["held out", *(f"1 in {one_in}" for one_in in shares)], rows)


def _delay(found: Row) -> str:
    """The median; in how many orders there was no alarm, or one before the change."""
    if found["median"] is None:
        return f"missed in {found['missed']} of {found['orders']}"
    missed = f" (missed in {found['missed']})" if found["missed"] else ""
    return f"{found['median']:,.0f}{missed}" + (f" ({found['early']} early)" if found["early"] else "")


def load(result: Row) -> str:
    """Examples a second at saturation."""
    rows = []
    for name, found in result["saturation"]["ratios"].items():
        empty = f"{found['of_empty_route']:.2g}" if "of_empty_route" in found else ""
        cells = [
            f"{found['examples_per_second']:,.0f}",
            f"{found['of_session']:.2g}",
            f"{found['of_plain']:.2g}",
            empty,
        ]
        rows.append([name, *cells])
    return table(["request", "examples per second", "of the graph", "of the plain network", "of an empty route"], rows)


def texts(result: Row) -> str:
    """Texts a second of the service and of FastAPI around the plain network, and the ratio of both in a round."""
    rows = [
        [
            name.replace("1 texts", "1 text").replace("1 connections", "1 connection"),
            f"{found['demur']:,.0f}",
            f"{found['fastapi']:,.0f}",
            _ratio(found),
        ]
        for name, found in result["rows"].items()
    ]
    return table(["a request", "texts per second", "of FastAPI", "ratio, and its range over rounds"], rows)


def _ratio(found: Row) -> str:
    return f"{found['ratio']:.2f} ({found['least_ratio']:.2f} to {found['largest_ratio']:.2f})"


def fair(result: Row) -> str:
    """The predictions of a network alone, and beside so many clients of another one."""
    rows = [
        [
            one["timed"],
            f"{one['other']}, by {one['clients']}" if one["other"] else "",
            f"{1000 * one['p50']:.1f}",
            f"{1000 * one['p99']:.1f}",
            f"{one['others_per_second']:.0f}" if one["other"] else "",
        ]
        for one in result["rows"]
    ]
    names = "median, ms", "99th percentile, ms", "answers of that one a second"
    return table(["predictions of", "while another one is asked, by clients", *names], rows)


def shadow(result: Row) -> str:
    """Latencies without a shadow and with one, and the ratio of both in a round."""
    rows = [
        [
            f"{key[1:]}th percentile",
            *(f"{1000 * one[name]:.1f}" for name in ("without", "again", "with")),
            *(_mean_ratio(one[f"ratio_{name}"]) for name in ("again", "with")),
        ]
        for key, one in result["latency"].items()
    ]
    names = "without, ms", "without again, ms", "with, ms", "ratio of those without", "ratio of with and without"
    return table(["", *names], rows)


def _mean_ratio(found: Row) -> str:
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def rpc(result: Row) -> str:
    """Both protocols by the number of workers."""
    rows = [
        [
            f"{name}, {workers} worker{'s' if workers != '1' else ''}",
            f"{one[name]['requests_per_second']:,.0f}",
            *(f"{1000 * one[name][key]:.1f}" for key in ("p50", "p99")),
        ]
        for workers, one in result["workers"].items()
        for name in ("HTTP", "gRPC")
    ]
    load = f"at {100 * result['load']:.0f} %"
    return table(["", "requests per second", f"median {load}, ms", f"99th percentile {load}, ms"], rows)


def versions(result: Row) -> str:
    """What a shadow's metrics say of each version, and after how many requests they tell it."""
    rows = []
    for one in result["rows"]:
        shares, requests = one["shares"], one["requests"]
        flips = shares["newly_rejected"] + shares["newly_accepted"]
        after = "never" if requests is None else f"{requests['median']:,.0f}"
        numbers = (_percent(one["accuracy"]), _percent(shares["changed"]), _percent(flips))
        rows.append([one["name"], *numbers, f"{shares['p_value_distance']:.2f}", after])
    heads = ["accuracy", "answers changed", "rejections changed", "distance of p-values", "told after requests"]
    return table(["version in the shadow", *heads], rows)


def cpu(result: Row) -> str:
    """Microseconds for an example, by what is asked for and by server."""
    times, servers = result["microseconds"], ("demur", "plain network", "no work")
    asked = [key.removeprefix("demur, ") for key in times if key.startswith("demur, ")]
    rows = [
        [
            f"{one} example{'' if one.endswith(' 1') else 's'}",
            *(f"{found['median']:.0f}" if (found := times.get(f"{name}, {one}")) else "" for name in servers),
        ]
        for one in asked
    ]
    return table(["a request with", "Demur", "FastAPI, plain network", "FastAPI, no work"], rows)


def cpu_traces(result: Row) -> str:
    """Microseconds for a request by the share of requests that are traced."""
    rows = [[name, f"{found['median']:.0f}"] for name, found in result["traces"].items()]
    return table(["requests that are traced", "µs for a request of one example, JSON"], rows)


def crowd(result: Row) -> str:
    """Answers a second to few clients and to many, and what of those to few is left for a second of processor time."""
    rows = []
    for asked, by_connections in result["rows"].items():
        size, clients = asked.split(", ")
        for connections, one in by_connections.items():
            rows.append(
                [
                    f"{int(size):,}",
                    connections,
                    clients,
                    f"{one['answered_per_second']:,.0f}",
                    f"{one['refused_per_second']:,.0f}",
                    f"{one['of_few']:.2f}",
                ]
            )
    heads = "examples a request", "connections", "refused, they ask again", "answered per second", "refused", "of few"
    return table([*heads], rows)


def cpu_rates(result: Row) -> str:
    """Requests a second by the number of connections."""
    rows = [
        [connections, f"{one['demur']:,.0f}", f"{one['fastapi']:,.0f}", f"{one['ratio']:.2f}"]
        for connections, one in result["requests_per_second"].items()
    ]
    return table(["connections", "Demur, requests per second", "FastAPI", "ratio in a round"], rows)


def bulk(result: Row) -> str:
    """Rows a second of each way."""
    rows = [[name, f"{rate:,.0f}"] for name, rate in result["rows_per_second"].items()]
    return table(["", "rows per second"], rows)


def clients(result: Row) -> str:
    """Of each client, how many of the things that it was asked to do it did."""
    rows = []
    for name in dict.fromkeys(row["client"] for row in result["rows"]):
        done = [row for row in result["rows"] if row["client"] == name]
        infers = [row for row in done if row["what"].startswith("infer ")]
        errors = [row for row in done if row["what"].startswith("error: ")]
        others = [row for row in done if row not in infers and row not in errors]
        version = result["versions"][name.split(" ")[0]]
        rows.append([f"{name}, {version}", *map(_done, (others, infers, errors))])
    return table(["client", "health and metadata", "inference, by type and layout", "errors as the client's own"], rows)


def _done(rows: list[Row]) -> str:
    return f"{sum(row['found'] == 'ok' for row in rows)} of {len(rows)}"


def servers(result: Row) -> str:
    """Requests a second at saturation, memory, and the latency of each server's faster form under each load."""
    by_connections, rounds = result["saturation"]["requests_per_second"], result["saturation"]["rounds"]
    rows = []
    shown_at_all = ("demur", *result["loads"][0])  # the default, and each server's faster form
    for name in shown_at_all:
        memory = sorted(one[name]["peak_rss_bytes"] for one in rounds)[len(rounds) // 2] / 2**20
        latencies = [load.get(name, {}).get("latency") for load in result["loads"]]
        shown = [
            " / ".join(_short(1000 * latency[key]) for key in ("p50", "p95", "p99")) if latency else ""
            for latency in latencies
        ]
        rows.append([name, *(f"{rates[name]:,.0f}" for rates in by_connections.values()), f"{memory:,.0f}", *shown])
    offered = [f"ms at {load['rate']:,.0f} a second" for load in result["offered"]]
    return table(["", *(f"{count} connections" for count in by_connections), "MiB", *offered], rows)


def mishaps(result: Row) -> str:
    """What each server lost to injected faults."""
    rows = []
    for name, found in result["mishaps"].items():
        neighbours = found["poison"]["neighbours"]
        failed = sum(count for status, count in neighbours.items() if status != "200")
        rows.append([name, f"{failed} of {sum(neighbours.values())}", f"{found['sigterm']['lost']}"])
    return table(["", "others that failed beside a wrong shape", "requests lost at SIGTERM"], rows)


def day_alerts(result: Row) -> str:
    """Each time that an alert fired."""
    rows = []
    for one in result["alerts"]:
        labels = ", ".join(f"{name} {value.partition(':')[0]}" for name, value in one["labels"].items())
        cleared = "" if one["cleared"] is None else clock(one["cleared"])
        rows.append([one["alert"], labels.removeprefix("instance "), one["fired_at"], cleared])
    return table(["alert", "of", "fires", "ends"], rows)


def day_memory(result: Row) -> str:
    """Resident memory of each replica in MiB, where it was up."""
    rows = []
    for instance, found in result["memory"].items():
        hours = [found["hourly"][hour] for hour in DAY_HOURS]
        cells = ["" if value is None else f"{value / 2**20:.0f}" for value in (*hours, found["end"], found["peak"])]
        rows.append([instance.partition(":")[0], *cells])
    return table(["MiB", *(clock(60 * hour) for hour in DAY_HOURS), "24:00", "peak"], rows)


def _short(value: float) -> str:
    """Two digits, and no powers of ten."""
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


VERDICT_PARTS: dict[str, Callable[[Row], float]] = {
    "ordinary": _likelihood("usual".__eq__),
    "turned": _likelihood(lambda name: name.startswith("rotation")),
    "other shifts": _likelihood(lambda name: name != "usual" and not name.startswith("rotation")),
    "AUROC, entropy": lambda row: float(next(iter(row["auroc"].values()))),
}
# Part of the page -> the results that it is made of, and how.
TABLES_OF = (
    baseline,
    price,
    frontier,
    strangers,
    files,
    regression,
    robustness,
    guarantees,
    drift,
    load,
    servers,
    crowd,
    texts,
    clients,
    rpc,
    cpu,
    fair,
    shadow,
    versions,
    bulk,
)
MADE = {make.__name__: (make.__name__, make) for make in TABLES_OF}
MADE |= {
    "few_foreign": ("drift", few_foreign),
    "mishaps": ("servers", mishaps),
    "cpu_rates": ("cpu", cpu_rates),
    "cpu_traces": ("cpu", cpu_traces),
}
MADE |= {"verdicts": ("frontier", verdicts), "strangers_foreign": ("strangers", strangers_foreign)}
MADE |= {"strangers_events": ("strangers", strangers_events)}
MADE |= {"files_intervals": ("files", files_intervals), "files_packages": ("files", files_packages)}
FULL = {
    "frontier": frontier_in_full,
    "files": files_in_full,
    "scores": scores_in_full,
    "guarantees": guarantees_in_full,
}

if __name__ == "__main__":
    update_parts(PAGE, parts())
    update_parts(MONITORING, parts_of_monitoring())
    for path, content in tables().items():
        path.write_text(content)
