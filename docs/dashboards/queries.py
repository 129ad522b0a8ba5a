"""PromQL that several panels and rules share.

Counts, rates, shares and times are 0 where nothing happens, not NaN: denominators are clamped, and a quantile of no
observations is replaced. Quantiles of what the model answers have no value then, since 0 would be a wrong one.
"""

JOB = 'job=~"$job", instance=~"$instance"'
MODEL = f'{JOB}, model="$model"'
PREDICTIONS = 'route=~".*/predict|.*/infer"'
RATE = "$__rate_interval"
WINDOW = "$window"
ZERO = "1e-9"  # a denominator where nothing was counted
SERVED_VERSIONS = f'max by (version) (demur_model_info{{{JOB}, name="$model"}})'


def or_zero_by_version(expression: str) -> str:
    """The expression, and 0 for each served version that it has no value for."""
    return f"({expression}) or 0 * {SERVED_VERSIONS}"


def or_none(expression: str, label: str) -> str:
    """What is above 0, and 0 with the label's value "none" where nothing is."""
    return f'({expression}) > 0 or on () label_replace(vector(0), "{label}", "none", "", "")'


def by_version(function: str, series: str, window: str = WINDOW, more: str = "") -> str:
    """The sum of `rate` or `increase` of a counter, for each version."""
    matchers = MODEL + (f", {more}" if more else "")
    return f"sum by (version) ({function}({series}{{{matchers}}}[{window}]))"


def share_by_version(part: str, whole: str) -> str:
    """A ratio of two sums by version, 0 where the second is 0."""
    return f"{part} / clamp_min({whole}, {ZERO})"


def quantile(level: float, histogram: str, window: str = RATE) -> str:
    """A quantile for each version; no value without observations."""
    buckets = f"sum by (version, le) (rate({histogram}_bucket{{{MODEL}}}[{window}]))"
    return f"histogram_quantile({level:g}, {buckets}) > -1e9"  # not NaN
