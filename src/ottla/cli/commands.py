"""All commands of `ottla`."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from ottla.cli import (
    acls,
    configuration,
    consume,
    demo,
    dump,
    exits,
    groups,
    help,
    journal,
    offline_users,
    offsets,
    perf,
    produce,
    proxy_users,
    report,
    servers,
    share,
    topics,
    transactions,
    users,
)
from ottla.cli.escapes import tell
from ottla.cli.options import as_command

_OF_KAFKAS_TOOLS = {
    "--from-beginning": "consume begins there, unless --from says otherwise",
    "--max-messages": "use --count",
    "--offset": "use --from",
    "--timeout-ms": "use --until-end, to stop at the current end of the topic",
    "--topic": "name the topic without an option, as in ottla consume orders",
    "--create": "use ottla topics create",
    "--list": "use ottla topics list, or ottla groups list",
    "--describe": "use ottla topics describe, or ottla groups describe",
    "--alter": "use ottla topics grow orders 12",
    "--partitions": "use ottla topics grow orders 12, or ottla topics create orders --partitions 12",
    "--acks": "records are stored with acks=all",
    "--broker-list": "use --bootstrap",
    "--delete": "use ottla topics delete, or ottla groups delete",
    "--reset-offsets": "use ottla groups reset",
    "--to-beginning": "use --to-earliest",
    "--to-end": "use --to-latest",
    "--property": "use --key-separator, or --json",
    "--producer.config": "use --command-config",
    "--consumer.config": "use --command-config",
    "--port": "use --listen HOST:PORT",
}
"""Options of Kafka's own tools that have another name here."""


class _Commands(TyperGroup):
    """Translates errors for people: Typer's come from pydantic, in pydantic's words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plainly(error)
            raise
        except Exception as error:
            # Typer does not export the errors for an unknown option and an extra argument, so their attributes have no
            # type here; only the first has `option_name`.
            if advice := _OF_KAFKAS_TOOLS.get(getattr(error, "option_name", "")):
                error.message, error.possibilities = f"{error.message}: {advice}", None  # type: ignore[attr-defined]
            elif advice := _about_an_extra_argument(error):
                error.message = advice  # type: ignore[attr-defined]
            raise


def _about_an_extra_argument(error: Exception) -> str:
    """Advice about an unexpected argument: the name of a file for `ottla produce`, or a password; otherwise empty."""
    found = re.fullmatch(r"Got unexpected extra argument.* \((.+)\)", getattr(error, "message", ""), re.DOTALL)
    context = getattr(error, "ctx", None)
    if found is None or context is None:
        return ""
    if context.command_path.endswith(" users add"):  # the error leaves it out: logs may keep it
        return "USER is the only argument; the password comes from a prompt, from stdin or from --password-file"
    if context.info_name == "produce" and " " not in (word := found[1]):
        return f"{word} is one argument too many: do you mean --file {word}?"
    return ""


def _plainly(error: typer.BadParameter) -> str:
    """Pydantic's error about a value, with the value and without Python's types."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    match found[0] if found else {}:
        case {"type": "int_parsing", "input": given}:
            return f"{given!r} is not an integer"
        case {"type": "float_parsing", "input": given}:
            return f"{given!r} is not a number"
        case {"type": "greater_than_equal", "input": given, "ctx": {"ge": least}}:
            return f"{given} is below {least}"
    return error.message.removeprefix("Value error, ")


Subcommands = Mapping[str, tuple[Callable[..., None], str]]
"""Name -> the function and its example."""


def _with_commands(server: Callable[..., None], commands: Subcommands) -> typer.Typer:
    """`ottla broker` or `ottla proxy`, which runs the server unless a subcommand follows."""

    def run(ctx: typer.Context, **options: Any) -> None:
        if ctx.invoked_subcommand is None:
            server(**options)

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    group = typer.Typer(invoke_without_command=True)
    group.callback()(as_command(run, server, [context, *inspect.signature(server).parameters.values()]))
    for name, (command, example) in commands.items():
        group.command(name, epilog=example)(command)
    return group


_SHOWN = {bool: "", int: "N", str: "TEXT", Path: "FILE"}
"""What help shows for an option's value. A flag has no value, but help would show its type like one."""


def _show_values(commands: typer.Typer) -> None:
    """Let help show values in plain words instead of Python's types, unless an option has its own."""
    for known in (*commands.registered_commands, commands.registered_callback):
        callback = known.callback if known is not None else None
        for parameter in inspect.signature(callback).parameters.values() if callback is not None else ():
            kind, *declared = get_args(parameter.annotation) or (None,)
            while get_args(kind):
                kind = get_args(kind)[0]  # for `int | None` and list[int]
            for option in declared:
                if isinstance(option, OptionInfo) and option.metavar is None:
                    option.metavar = _SHOWN.get(kind)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _show_values(group.typer_instance)


app = typer.Typer(
    name="ottla",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=help.EXIT_CODES,
)
_OF_BROKER: Subcommands = {
    "check": (configuration.check_broker, configuration.BROKER_CHECK_EXAMPLE),
    "reload": (configuration.reload, configuration.RELOAD_EXAMPLE),
}
_OF_PROXY: Subcommands = {
    "check": (configuration.check_proxy, configuration.PROXY_CHECK_EXAMPLE),
    "reload": (configuration.reload, configuration.RELOAD_EXAMPLE),
    "journal": (journal.journal, journal.EXAMPLE),
    "report": (report.report, report.EXAMPLE),
}
_broker = _with_commands(servers.broker, _OF_BROKER)
_broker.add_typer(offline_users.app, name="users")
app.add_typer(_broker, name="broker", epilog=servers.BROKER_EXAMPLE)
_proxy = _with_commands(servers.proxy, _OF_PROXY)
_proxy.add_typer(proxy_users.app, name="users")
_proxy.add_typer(proxy_users.app, name="user", hidden=True)  # its first name
app.add_typer(_proxy, name="proxy", epilog=servers.PROXY_EXAMPLE)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(share.app, name="share")
app.add_typer(transactions.app, name="transactions")
app.add_typer(acls.app, name="acls")
app.add_typer(users.app, name="users")
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

        tell(f"ottla {__version__} (codec: {engine})")
        raise typer.Exit


@app.callback(help=help.ABOUT)
def ottla(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the codec's engine."
        ),
    ] = False,
) -> None:
    """The program itself, without a command."""


_show_values(app)


def explain(error: typer.BadParameter) -> None:
    """Print an error that the command of this command line has raised, as Typer does, and end the process.

    Typer parses the command line, but the command does not run again.
    """

    def refused(**options: Any) -> NoReturn:
        raise error

    program: Any = typer.main.get_command(app)
    program.commands[sys.argv[1]].callback = refused
    program(prog_name="ottla")
