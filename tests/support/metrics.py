"""Reading Prometheus' text format."""

from prometheus_client.parser import text_string_to_metric_families


def metric(text: str, name: str, /, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())
