"""Prometheus' text exposition: the series of a table of metrics, from one or many runs, with each HELP and TYPE once.

Only readings that are numbers are exposed: in Prometheus an absent series means no reading.
Names follow https://prometheus.io/docs/practices/naming: base units, `_total` for counters and for nothing else.

prometheus_client is imported where text is made: every report knows the names of metrics, and few are in this format.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from gpuprep.untrusted.plaintext import visible

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

PREFIX = "gpuprep_"
MOST_SERIES = 2000  # of one metric and host
MOST_LETTERS = 500  # of a label's value
COMMON = ("host", "profile", "source")
GPU = (*COMMON, "gpu", "uuid")


class Metric(NamedTuple):
    labels: tuple[str, ...]
    help: str

    def family(self, name: str) -> CounterMetricFamily | GaugeMetricFamily:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        return kind(PREFIX + name, self.help, labels=self.labels)


Metrics = Mapping[str, Metric]  # by name without prefix, in the order in which they are shown


class Exposition:
    """Collects series, then shows them as text."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # By labels: a series may be exposed once only, whatever a record repeats.
        self._series: dict[str, dict[tuple[str, ...], float]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: object, labels: Mapping[str, str]) -> None:
        """Add one series of metric `name`, unless `value` is not a number (Missing, None). Unknown labels are dropped.

        At most MOST_SERIES per host and metric, so that no owner of a machine can fill everybody's Prometheus.
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
        from prometheus_client.exposition import generate_latest

        return generate_latest(cast("Collector", self)).decode()  # it calls `collect` and nothing else


def times(value: object, factor: float) -> float | None:
    """The value in base units, without rounding errors of the product: 763.2 TFLOPS is 763.2e12.

    None for a negative figure, which no measurement can produce and no graph should show.
    """
    number = _number(value)
    return None if number is None or number < 0 else float(f"{number * factor:.12g}")


def _number(value: object) -> float | None:
    """The value as a float; None if it is not a number, not finite, or too large for a float."""
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _label(text: str) -> str:
    """A label of safe characters and limited length: a lone surrogate from JSON would make the text unwritable."""
    text = visible(text)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
