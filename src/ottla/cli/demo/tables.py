"""The demo's output, in words that need no knowledge of Kafka."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ottla.cli.demo.expected import Days, Difference, Fleet, Scatter
from ottla.cli.demo.flights import ROWS

_SECURED = (
    "Broker and proxy listen with SASL_SSL. All clients log in by SCRAM-SHA-512, as does the proxy at the broker. "
    "At the proxy the services may write one topic, and nothing else.\n"
)
_BUSIEST = 5
"""Days in the table."""


def opening(console: Console, rows: int, kafka: str | None, secured: bool) -> None:
    broker = f"your Kafka at {kafka}" if kafka else "a broker"
    flights = f"[bold]{rows:,} flights[/]"
    some = f"Here are {flights} of the {ROWS:,} that" if rows < ROWS else flights
    console.print(
        f"\n{some} left New York in 2013. Each is an event, and its key is its [bold]aircraft[/]. "
        "Kafka keeps the events of one key together, in order, in one partition, as long as all writers agree how to "
        "map a key to a partition. Two services write, and they do [bold]not[/] agree:\n"
        "  A  uses ottla.sdk, which hashes keys as Java clients do: murmur2\n"
        "  B  uses confluent-kafka, which hashes keys as librdkafka does: CRC-32\n"
        f"First they write straight to {broker}, then through ottla's proxy. PySpark looks at both.\n"
        + (_SECURED if secured else ""),
        highlight=False,
    )


def homes(console: Console, direct: Scatter, rewritten: Scatter, partitions: int) -> None:
    table = _table(
        f"Where is each aircraft, in {partitions} partitions?",
        *("", "to the broker", "via the proxy"),
        caption="A program that trusts a partition to have all of a key gets wrong results from the left topic.",
    )
    for name, before, after in (
        ("flights", direct.records, rewritten.records),
        ("  without a known aircraft (no key)", direct.without_key, rewritten.without_key),
        ("aircraft", direct.aircraft, rewritten.aircraft),
        ("aircraft counted partition by partition", direct.counted_apart, rewritten.counted_apart),
    ):
        table.add_row(name, _number(before), _number(after))
    table.add_row(
        "[bold]aircraft in more than one partition[/]",
        f"[bold red]{_number(direct.scattered)}[/]",
        f"[bold green]{_number(rewritten.scattered)}[/]",
    )
    console.print(table)


def fleets(console: Console, found: Mapping[str, Fleet], names: Mapping[str, str]) -> None:
    table = _table(
        "What an analyst asks: the flights by carrier, joined per aircraft",
        *("carrier", "flights", "aircraft", "flights per\naircraft", "mean delay\non arrival", "mean\nseats"),
        caption="PySpark, on the topic that the proxy wrote, and the register of aircraft.",
    )
    for carrier, fleet in sorted(found.items(), key=lambda item: -item[1].flights):
        table.add_row(
            re.sub(r" (Inc|Co|Corporation)\.?$", "", names.get(carrier, carrier)),
            _number(fleet.flights),
            _number(fleet.aircraft),
            _ratio(fleet.flights, fleet.aircraft),
            f"{_ratio(fleet.delay, fleet.arrived)} min",
            _ratio(fleet.seats, fleet.seated, "{:,.0f}"),
        )
    console.print(table)


def days(console: Console, found: Days) -> None:
    airports = sorted({airport for counts in found.values() for airport in counts})
    table = _table(
        f"The busiest of {len(found)} days, counted by a stream",
        *("day (UTC)", *airports, "all"),
        caption="PySpark's structured streaming, with a watermark a day behind the newest flight.",
        min_width=80,  # so that title and caption are not wrapped
    )
    for day, counts in sorted(found.items(), key=lambda item: -sum(item[1].values()))[:_BUSIEST]:
        table.add_row(day, *(_number(counts.get(airport, 0)) for airport in airports), _number(sum(counts.values())))
    console.print(table)


def differences(console: Console, found: Mapping[str, tuple[Scatter, Difference]]) -> None:
    table = _table("Is every flight there, once, as it was sent?", "topic", "flights", "lost", "twice", "altered")
    for topic, (scatter, difference) in found.items():
        counts = (difference.missing, difference.doubled, difference.foreign)
        table.add_row(topic, _number(scatter.records), *(f"[{'red' if n else 'green'}]{_number(n)}[/]" for n in counts))
    console.print(table)


def durations(console: Console, steps: Sequence[tuple[str, float]], total: float) -> None:
    table = _table("How long it took", "step", "seconds")
    for name, seconds in steps:
        table.add_row(name, f"{seconds:.1f}")
    table.add_section()
    table.add_row("total", f"{total:.1f}")
    console.print(table)


def closing(console: Console, direct: str, rewritten: str, kafka: str | None, keep: Path | None) -> None:
    console.print(
        "\n[bold green]Every count is right:[/] both topics match the CSV. What to try next:", highlight=False
    )
    if kafka:
        lines = [
            f"ottla consume {rewritten} -b {kafka} --key-separator ' -> ' --count 3",
            f"ottla topics describe {direct} -b {kafka}",
            f"ottla topics delete {direct} {rewritten} -b {kafka}",
        ]
    elif keep:
        lines = [
            f"ottla broker --data {keep} &",
            f"ottla consume {rewritten} --key-separator ' -> ' --count 3",
            f"ottla topics describe {direct}",
        ]
    else:
        lines = [
            "ottla demo --keep ./flights-data        # and then look into the topics:",
            "ottla broker --data ./flights-data &",
            f"ottla consume {rewritten} --key-separator ' -> ' --count 3",
        ]
    lines.append("ottla proxy --upstream HOST:PORT --topic 'YOURS=observe'   # your own topic: counts, changes nothing")
    for line in lines:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def _table(title: str, *headings: str, caption: str | None = None, min_width: int | None = None) -> Table:
    """A table whose first column is text and the others numbers."""
    table = Table(
        title=f"\n{title}",
        caption=caption,
        min_width=min_width,
        title_justify="left",
        caption_justify="left",
        box=box.ROUNDED,
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _number(number: int) -> str:
    return f"{number:,}"


def _ratio(above: int, below: int, form: str = "{:,.1f}") -> str:
    return form.format(above / below) if below else "–"
