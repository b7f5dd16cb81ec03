"""All commands of `ottla`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ottla.cli import consume, demo, dump, exits, groups, journal, offsets, perf, produce, servers, topics, transactions


class _Commands(TyperGroup):
    """Refuses values in words for people: pydantic, which checks them for Typer, puts its own before these."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def _with_commands(server: Callable[..., None]) -> typer.Typer:
    """`ottla proxy`, which runs the proxy if no command of its own follows."""

    def run(ctx: typer.Context, **options: Any) -> None:
        if ctx.invoked_subcommand is None:
            server(**options)

    # Typer reads the options from the signature, which mypy does not know that a function may be given.
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *inspect.signature(server).parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {"ctx": typer.Context, **server.__annotations__}
    run.__doc__ = server.__doc__
    group = typer.Typer(invoke_without_command=True)
    group.callback()(run)
    group.command("journal", epilog=journal.EXAMPLE)(journal.journal)
    return group


app = typer.Typer(
    name="ottla",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 an option, address or file cannot be used, 3 nobody there or "
    "too slow, 130 Ctrl-C, 143 SIGTERM and 129 SIGHUP (servers: 0).",
)
app.command("broker", epilog=servers.BROKER_EXAMPLE)(servers.broker)
app.add_typer(_with_commands(servers.proxy), name="proxy", epilog=servers.PROXY_EXAMPLE)
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
