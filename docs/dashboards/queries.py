"""PromQL that several panels and rules share.

Counts, rates, shares and times are 0 where nothing happens, not NaN: denominators are clamped, and a quantile of no
observations is replaced. Quantiles of what the model answers have no value then, since 0 would be a wrong one.
"""

from dataclasses import dataclass

JOB = 'job=~"$job", instance=~"$instance"'
MODEL = f'{JOB}, model="$model"'
PREDICTIONS = 'route=~".*/predict|.*/infer"'
RATE = "$__rate_interval"
WINDOW = "$window"
ZERO = "1e-9"  # a denominator where nothing was counted
SERVED_VERSIONS = f'max by (version) (probity_model_info{{{JOB}, name="$model"}})'
# A bin without a served example would have an infinite index.
LEAST_SERVED_SHARE = "0.0001"


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
    return f"histogram_quantile({level:g}, {buckets}) >= 0"


@dataclass(frozen=True)
class Distribution:
    """A served histogram beside the calibration data: `probity_QUANTITY` grouped by `labels`, over `window`."""

    quantity: str
    labels: str
    matchers: str
    window: str

    @property
    def _selected(self) -> str:
        return f"{{{self.matchers}}}" if self.matchers else ""

    @property
    def count(self) -> str:
        """How many examples were served."""
        return f"sum by ({self.labels}) (increase(probity_{self.quantity}_count{self._selected}[{self.window}]))"

    @property
    def shares(self) -> str:
        """S(le): the share of served examples at or below each bound."""
        buckets = f"probity_{self.quantity}_bucket{self._selected}[{self.window}]"
        return (
            f"sum by ({self.labels}, le) (increase({buckets}))"
            f" / on ({self.labels}) group_left () clamp_min({self.count}, {ZERO})"
        )

    def _reference(self, series: str, labels: str) -> str:
        matchers = f'quantity="{self.quantity}"' + (f", {self.matchers}" if self.matchers else "")
        return f"max by ({self.labels}, {labels}) ({series}{{{matchers}}})"

    @property
    def reference_shares(self) -> str:
        """R(le): the share of the calibration data at or below each bound."""
        return self._reference("probity_reference_share", "le")

    @property
    def reference_bins(self) -> str:
        """r_b: the share of the calibration data in each bin."""
        return self._reference("probity_reference_bin_share", "below, le")

    @property
    def kolmogorov_smirnov(self) -> str:
        """max_le |S(le) - R(le)|, 0 without examples."""
        distance = f"abs({self.shares} - on ({self.labels}, le) {self.reference_shares})"
        return f"max by ({self.labels}) ({distance}) * on ({self.labels}) ({self.count} > bool 0)"

    @property
    def bins(self) -> str:
        """s_b = S(le) - S(below): the share of served examples in each bin; the first one has no lower bound."""
        upper = f"0 * {self.reference_bins} + on ({self.labels}, le) group_left () ({self.shares})"
        lower = f'label_replace({self.shares}, "below", "$1", "le", "(.+)")'
        return f"({upper} - on ({self.labels}, below) group_left () {lower} or {upper})"

    @property
    def population_stability_index(self) -> str:
        """sum_b (s_b - r_b) ln(s_b / r_b), 0 without examples."""
        served = f"clamp_min({self.bins}, {LEAST_SERVED_SHARE})"
        terms = f"({served} - {self.reference_bins}) * ln({served} / {self.reference_bins})"
        return f"sum by ({self.labels}) ({terms}) * on ({self.labels}) ({self.count} > bool 0)"

    def chance(self, critical: float) -> str:
        """What chance alone exceeds with probability 2 exp(-2 c^2): c sqrt(1/n + 1/m), at most 1 (Smirnov, 1948)."""
        examples = f"max by ({self.labels}) (probity_calibration_examples{self._selected})"
        return f"clamp_max({critical:g} * sqrt(1 / clamp_min({self.count}, 1) + 1 / {examples}), 1)"


def served(quantity: str) -> Distribution:
    """The distribution that a dashboard shows."""
    return Distribution(quantity, "version", MODEL, WINDOW)
