"""All commands of `ottla`."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ottla.cli import consume, demo, dump, exits, groups, offsets, perf, produce, servers, topics, transactions


class _Commands(TyperGroup):
    """Refuses values in words for people: pydantic, which checks them for Typer, puts its own before these."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="ottla",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 an option, address or file cannot be used, 3 nobody there or "
    "too slow, 130 Ctrl-C, 143 SIGTERM (servers: 0).",
)
app.command("broker", epilog=servers.BROKER_EXAMPLE)(servers.broker)
app.command("proxy", epilog=servers.PROXY_EXAMPLE)(servers.proxy)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.command("offsets", epilog=offsets.EXAMPLE)(offsets.offsets)
app.command("produce", epilog=produce.EXAMPLE)(produce.produce)
app.command("consume", epilog=consume.EXAMPLE)(consume.consume)
app.add_typer(perf.app, name="perf")
app.command("dump", epilog=dump.EXAMPLE)(dump.dump)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ottla import __version__

        with exits.reported():
            from ottla.codec import engine

        typer.echo(f"ottla {__version__} (codec: {engine})")
        raise typer.Exit


@app.callback()
def ottla(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and the engine that runs."
        ),
    ] = False,
) -> None:
    """Kafka's little sister: a broker, a proxy that puts equal keys together, and the tools to talk to any Kafka."""
