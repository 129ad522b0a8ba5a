"""Metrics of labels that came after the predictions. Ratios of them are accuracies and calibration errors."""

from prometheus_client import CollectorRegistry, Counter, Gauge

MODEL = ("model", "version")


class FeedbackMetrics:
    """Declared in `registry`. Of a regression, `correct` counts the share of an example's outputs whose interval holds
    the truth, and its confidence is the level of the intervals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, label: str) -> Counter:
            return Counter(f"demur_{name}", text, (*MODEL, label), registry=registry)

        self.examples = counter("feedback_examples", "Examples whose label came, by what was decided.", "decision")
        self.correct = counter("feedback_correct", "Examples whose label shows the answer to be right.", "decision")
        self.squared_error = counter(
            "feedback_squared_error", "Sum of the squared errors of a regression's means.", "decision"
        )
        self.bin_correct = counter(
            "feedback_bin_correct", "Examples answered rightly, by confidence: up to its label.", "confidence"
        )
        self.bin_confidence = counter(
            "feedback_bin_confidence", "Sum of the confidences of labelled examples, by confidence.", "confidence"
        )
        # Each process shows its own test's value divided by the number of processes: the sum over them is the mean,
        # which reaches 100 without cause with a probability of 1 % at most. The largest of M would with up to M %.
        self.martingale = Gauge(
            "demur_accuracy_martingale",
            "Test martingale, 1 at the start: evidence that answers are less accurate than expected.",
            MODEL,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.expected = Gauge(
            "demur_expected_accuracy",
            "What the accepted should reach at least: certified, or of held-out data.",
            MODEL,
            registry=registry,
            multiprocess_mode="livemax",
        )
