"""The docs list every metric of broker and proxy, and the dashboards name only metrics and labels that exist."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.metrics import BROKER_METRICS
from ottla.proxy.metrics import PROXY_METRICS
from ottla.serve.traffic import TRAFFIC_METRICS
from ottla.server_metrics import MetricKind, ServerMetric

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"operating.md": TRAFFIC_METRICS, "broker.md": BROKER_METRICS, "proxy.md": PROXY_METRICS}
BOARDS = {"broker.json": BROKER_METRICS, "proxy.json": PROXY_METRICS}
OF_PROMETHEUS_CLIENT = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
"""What dashboards use of the metrics that the library itself has."""
OF_PROMETHEUS = {"le", "job", "instance"}
"""Labels that every metric has, or every histogram."""


def row(metric: ServerMetric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels and f'{labels} '}| {metric.meaning} |"


def series(metrics: Iterable[ServerMetric]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names that a query may use, and the labels of each."""
    for each in metrics:
        suffixes = ("_bucket", "_sum", "_count") if each.kind is MetricKind.HISTOGRAM else ("",)
        yield from ((each.name + suffix, each.labels) for suffix in suffixes)


def panels(board: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DOCS / "grafana" / board).read_text())["panels"]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_row_for_each_metric(page: str) -> None:
    _, _, rest = (DOCS / page).read_text().partition("| metric | type | labels | meaning |\n|---|---|---|---|\n")
    assert rest.partition("\n\n")[0].splitlines() == [row(each) for each in PAGES[page]]


def test_names_follow_kafka_or_say_whose_they_are_and_counters_end_in_total() -> None:
    metrics = (*TRAFFIC_METRICS, *BROKER_METRICS, *PROXY_METRICS)
    assert len({each.name for each in metrics}) == len(metrics) > 40
    for each in metrics:
        assert re.fullmatch(r"(kafka|ottla_server|ottla_broker|ottla_proxy)_[a-z_]+", each.name)
        assert each.name.endswith("_total") == (each.kind is MetricKind.COUNTER)


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_names_only_metrics_and_labels_that_exist(board: str) -> None:
    exported = dict(series((*TRAFFIC_METRICS, *BOARDS[board]))) | dict.fromkeys(OF_PROMETHEUS_CLIENT, ())
    used = set()
    for panel in panels(board):
        for target in panel["targets"]:
            query, legend = target["expr"], target["legendFormat"]
            names = set(re.findall(r"\b(?:kafka|ottla|process)_\w+", query))
            assert names and names <= exported.keys(), query
            used |= names
            by = {label for each in re.findall(r"by \((.*?)\)", query) for label in each.split(", ")}
            labels = by | set(re.findall(r"(\w+)=~?\"", query)) | set(re.findall(r"{{(\w+)}}", legend))
            assert labels <= OF_PROMETHEUS.union(*(exported[name] for name in names)), query
            assert query.count("(") == query.count(")") and query.count('{job="$job"') >= len(names)
    unused = {each.name for each in (*TRAFFIC_METRICS, *BOARDS[board])} - {
        re.sub("_bucket$", "", each) for each in used
    }
    assert not unused, "each metric has a panel"


@pytest.mark.parametrize("board", BOARDS)
def test_the_panels_of_a_dashboard_do_not_overlap(board: str) -> None:
    assert len({panel["id"] for panel in panels(board)}) == len(panels(board)) > 10
    for one, other in combinations([panel["gridPos"] for panel in panels(board)], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels(board))
