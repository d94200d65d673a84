"""Prometheus' text exposition: series of a table of metrics, from one run or from many, each HELP and TYPE once.

Only numbers that were read are exposed: an absent series is Prometheus' own word for no reading.
Names follow https://prometheus.io/docs/practices/naming: base units, `_total` for counters and for nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gpuprep.untrusted.plaintext import visible

PREFIX = "gpuprep_"
MOST_SERIES = 2000  # of one metric and host
MOST_LETTERS = 500  # of a label's value
COMMON = ("host", "profile", "source")
GPU = (*COMMON, "gpu", "uuid")


class Metric(NamedTuple):
    labels: tuple[str, ...]
    help: str

    def family(self, name: str) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        return kind(PREFIX + name, self.help, labels=self.labels)


Metrics = Mapping[str, Metric]  # by name without prefix, in the order in which they are shown


class Exposition(Collector):
    """Collects series, then shows them as text."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # By labels: a series may be exposed once only, whatever a record repeats.
        self._series: dict[str, dict[tuple[str, ...], float]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: object, labels: Mapping[str, str]) -> None:
        """One series of metric `name`; none where `value` is no number: a Missing, None. Labels beyond its own go.

        Of a host no more than MOST_SERIES a metric: whoever owns one machine does not fill the Prometheus of all.
        """
        number, host = _number(value), labels.get("host", "")
        if number is not None and self._counts[name, host] < MOST_SERIES:
            key = tuple(_label(labels[label]) for label in self._metrics[name].labels)
            self._series.setdefault(name, {})[key] = number
            self._counts[name, host] += 1

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, metric in self._metrics.items():
            if name in self._series:
                family = metric.family(name)
                for labels, value in self._series[name].items():
                    family.add_metric(labels, value)
                yield family

    def text(self) -> str:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()


def times(value: object, factor: float) -> float | None:
    """In base units, rounded to the figures that were read: 763.2 TFLOPS is 763.2e12, without the product's dust.

    None for a negative figure: nobody measured it, and a graph would show it as if somebody had.
    """
    number = _number(value)
    return None if number is None or number < 0 else float(f"{number * factor:.12g}")


def _number(value: object) -> float | None:
    """None where it is none, is not finite, or is larger than any float."""
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _label(text: str) -> str:
    """A lone surrogate, which JSON can carry, would make the whole text unwritable."""
    text = visible(text)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
