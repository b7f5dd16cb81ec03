"""Prometheus' view of a server: the samples of its ``/metrics``."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.patience import HUNG


class Scraped:
    """The samples of one page.

    Attributes:
        names: of all metrics; a counter's ends in ``_total``, as in the docs.
    """

    def __init__(self, page: str) -> None:
        self.names: set[str] = set()
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(page):
            self.names.add(f"{family.name}_total" if family.type == "counter" else family.name)
            for sample in family.samples:
                place = sample.name, frozenset(sample.labels.items())
                assert place not in self._values, f"Prometheus refuses a page with two values of {place}"
                self._values[place] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self._values[name, frozenset(labels.items())]

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric by the values of its labels, which are sorted by their names."""
        return {
            tuple(value for _, value in sorted(labels)): count
            for (each, labels), count in self._values.items()
            if each == name
        }


def scrape(address: str | None) -> Scraped:
    """Ask a server's health address for ``/metrics``."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=HUNG) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        return Scraped(response.read().decode())
