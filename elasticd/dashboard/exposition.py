"""The text that Prometheus reads, by its own library: names and label values are escaped there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from elasticd.dashboard.metrics import METRICS, ClusterFigures, Metric, Sample, samples


class _Given(Collector):
    """What is told once."""

    def __init__(self, given: Iterable[Sample]) -> None:
        self._given: Mapping[str, list[Sample]] = {each.name: [] for each in METRICS}
        for sample in given:
            self._given[sample.metric].append(sample)

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if found := self._given[metric.name]:
                yield _family(metric, found)


def _family(metric: Metric, found: Iterable[Sample]) -> Family:
    if metric.kind == "summary":
        summary = SummaryMetricFamily(metric.name, metric.about, labels=metric.labels)
        for each in found:
            summary.add_metric(each.labels, each.count, each.value)
        return summary
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.about, labels=metric.labels)
    for each in found:
        family.add_metric(each.labels, each.value)
    return family


def exposed(figures: ClusterFigures, accept: str = "") -> tuple[bytes, str]:
    """The page, and its type: of the formats the one that ``accept`` (the header) asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(samples(figures)))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
