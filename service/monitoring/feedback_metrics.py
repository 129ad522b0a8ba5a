"""Metrics of labels that came after the predictions. Ratios of them are accuracies and calibration errors."""

from prometheus_client import CollectorRegistry, Counter, Gauge

MODEL = ("model", "version")


class FeedbackMetrics:
    """Declared in `registry`. Of a regression, `correct` counts the share of an example's outputs whose interval holds
    the truth, and its confidence is the level of the intervals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"probity_{name}", text, (*MODEL, *labels), registry=registry)

        def gauge(name: str, text: str, mode: str) -> Gauge:
            return Gauge(f"probity_{name}", text, MODEL, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]

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
        self.alarms = counter("accuracy_alarms", "Times that the evidence reached 2; the test begins again then.")
        # All workers go on with one test; whichever had a label last knows how it stands.
        self.evidence = gauge(
            "accuracy_evidence",
            "log10 of the capital of a gambler who bets that answers are less accurate than expected.",
            "livemostrecent",
        )
        self.expected = gauge(
            "expected_accuracy", "What the accepted should reach at least: certified, or of held-out data.", "livemax"
        )
        self.lost = Counter(
            "probity_feedback_lost", "Answers that could not be remembered for feedback.", registry=registry
        )
