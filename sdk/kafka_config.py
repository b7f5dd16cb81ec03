"""Kafka's configuration names: turns a configuration of a Java client or librdkafka into arguments of ottla.

    config = ottla.from_kafka_config({"bootstrap.servers": "b:9092", "group.id": "billing", "linger.ms": 20})
    async with ottla.connect(**config) as client:
        async with client.producer(**config.producer) as producer: ...
        async with client.consumer("orders", **config.consumer) as consumer: ...
        async with client.share_consumer("jobs", **config.share_consumer) as jobs: ...

Rules:
- Names are from Java's producer, consumer and admin client, from librdkafka, and from confluent-kafka. Values may be
  strings, as in a properties file. Milliseconds become seconds.
- No option is dropped silently: an unknown name is an error that suggests the nearest known one; a name that has no
  meaning here, or an invalid value, is an error that says why. One exception reports all errors.
- The calls that take the arguments validate the values, on a client that is never opened.
- `ottla.sdk.kafka_meanings` has the tables of names; `ottla.sdk.kafka_security` reads names for TLS and SASL.
- Options that other options make ineffective, as in Kafka's clients, are left out with a warning in the log; for
  example the level of a compression that is not chosen.
- A configuration shared with other programs has names that make no difference here. ``lenient`` leaves those out, with
  one warning in the log: they only affect resource usage. Names that a program may rely on (`max.block.ms`,
  interceptors, callbacks) and unknown names are refused even then. ``ignore`` leaves out any name.
- A share consumer gets its own options, and options of a consumer that it knows, such as ``group``.
- Options that are not given have ottla's defaults, not Java's: offsets are not committed automatically, and a position
  outside the log is an error, unless you configure it otherwise.

Source: ProducerConfig.java, ConsumerConfig.java, AdminClientConfig.java; librdkafka's CONFIGURATION.md.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast, get_args

from ottla.addresses import without_user
from ottla.errors import Closed, ConfigurationError
from ottla.sdk.arguments import string, strings
from ottla.sdk.drivers.driver import DriverType
from ottla.sdk.kafka_meanings import MEANINGS, SAME, UNITED, No, Only, Part, To, meaning
from ottla.sdk.kafka_security import PROTOCOL, SECURITY_NAMES, is_security, read_security
from ottla.sdk.kafka_values import text
from ottla.sdk.logs import logger
from ottla.sdk.options import ClientOptions
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.setting_names import is_shown, not_shown

if TYPE_CHECKING:
    from ottla.sdk.client import Client

log = logger("ottla.sdk")


class KafkaConfig(dict[str, Any]):
    """Arguments: the mapping itself is for `ottla.connect`; its attributes are for the client's methods.

    Attributes:
        producer, consumer, share_consumer: arguments of `Client.producer`, `Client.consumer`, `Client.share_consumer`.
        left_out: the names that ``lenient`` or ``ignore`` left out, and names that other options make ineffective, such
            as the level of a compression that is not chosen; each with the reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.producer: dict[str, Any] = {}
        self.consumer: dict[str, Any] = {}
        self.share_consumer: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}

    def part(self, name: Part) -> dict[str, Any]:
        """The arguments of ``"client"``, ``"producer"`` and so on; `ConfigurationError` for an unknown name."""
        parts: dict[str, dict[str, Any]] = {
            "client": self,
            "producer": self.producer,
            "consumer": self.consumer,
            "share_consumer": self.share_consumer,
        }
        if name not in parts:
            raise ConfigurationError(f"name must be one of {', '.join(map(repr, parts))}, not {name!r}")
        return parts[name]


def from_kafka_config(config: Mapping[str, Any], *, lenient: bool = False, ignore: Collection[str] = ()) -> KafkaConfig:
    """Turn Kafka's configuration names into arguments of `ottla.connect` and of the client's methods.

    Args:
        lenient: leave out names that have no meaning here and make no difference to the program, such as
            ``metric.reporters``: for a configuration that Java programs use as well. A warning in the log lists them,
            and so does ``left_out``.
        ignore: leave out these names, whatever they mean: names of other programs, such as ``schema.registry.url``, and
            names that you can do without.

    Raises:
        ConfigurationError: some names are unknown or have no meaning here, some values are invalid or contradict each
            other; lists them all.
    """
    made = understood(config, lenient=lenient, ignore=ignore)
    if made.left_out:
        log.warning("configuration names ignored: they have no meaning in ottla", extra={"names": made.left_out})
    made.left_out.update({name: "ignore= names it" for name in config if name in ignore})
    return made


def understood(config: Mapping[str, Any], *, lenient: bool = False, ignore: Collection[str] = ()) -> KafkaConfig:
    """Like `from_kafka_config`, but logs nothing, and does not list the names in ``ignore``."""
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"config must be a mapping of names to values, not {config!r}")
    ignore = strings("ignore", ignore)
    made = KafkaConfig()
    wrong: list[str] = []
    read = {string("a name", name): value for name, value in config.items() if name not in ignore}
    if hidden := [name for name in read if not is_shown_name(name)]:
        wrong.append(not_shown(config, hidden))
        read = {name: value for name, value in read.items() if name not in hidden}
    security = read_security({name: read.pop(name) for name in list(read) if is_security(name)}, lenient=lenient)
    wrong += map(str, security.wrong)
    made |= security.arguments
    made.left_out.update(security.left_out)
    for name, value in read.items():
        try:
            _apply(made, name, value, lenient)
        except ConfigurationError as error:
            wrong.append(str(error))
    wrong += _contradictions(read) + _combine(made, read) + _refusals(made, read)
    if wrong:
        raise ConfigurationError("; ".join(wrong))
    of_share_consumers = [each.name for each in fields(ShareConsumerOptions)]
    made.share_consumer.update({name: made.consumer[name] for name in of_share_consumers if name in made.consumer})
    return made


def is_shown_name(name: str) -> bool:
    """Whether an error may quote a name: Kafka's clients know it, or it looks like a setting."""
    return meaning(name) is not None or is_shown(name, [*MEANINGS, *SAME, *SECURITY_NAMES])


def near_name(name: str) -> str:
    """The name of Kafka's that is most similar to an unknown one; empty if none is."""
    return next(
        iter(difflib.get_close_matches(name.lower().replace("_", "."), [*MEANINGS, *SAME, PROTOCOL], 1, 0.5)), ""
    )


def _apply(made: KafkaConfig, name: str, value: Any, lenient: bool) -> None:
    match meaning(name):
        case None:
            near = near_name(name)
            advice = f": did you mean {near!r}?" if near else f"; if it is another program's, ignore=({name!r},)"
            raise ConfigurationError(f"{name!r} is not a name that Kafka's clients know{advice}")
        case No() as no:
            _leave_out(made, name, f"{name!r} has no meaning here", no, lenient and not callable(value))
        case Only(values=values) as only:
            if text(value).lower() not in [each.lower() for each in values]:
                can = f"{name!r} can only be {' or '.join(values)} here, not {value!r}"
                _leave_out(made, name, can, only, lenient and text(value) not in only.needed)
        case To() if value is None:
            raise ConfigurationError(f"{name!r} is None: is a variable unset? Give a value, or leave the name out")
        case To(part=part, option=option, convert=convert):
            try:
                made.part(part)[option] = convert(value)
            except ConfigurationError as error:
                raise ConfigurationError(f"{name!r}: {error}") from None


def _leave_out(made: KafkaConfig, name: str, says: str, what: No | Only, lenient: bool) -> None:
    if lenient and what.idle:
        made.left_out[name] = what.why
        return
    advice = " (lenient=True leaves it out)" if what.idle else ""
    raise ConfigurationError(f"{says}: {what.why}{advice}")


def _leads_to(name: str) -> tuple[Part, str] | None:
    """The part and the argument that a name influences."""
    what = meaning(name)
    return (what.part, UNITED.get(what.option, what.option)) if isinstance(what, To) else None


def _contradictions(config: Mapping[str, Any]) -> list[str]:
    """Names with the same meaning whose values differ."""
    values: dict[tuple[Part, str], dict[str, Any]] = {}
    for name, value in config.items():
        if isinstance(what := meaning(name), To):
            with suppress(ConfigurationError):  # reported already
                values.setdefault((what.part, what.option), {})[name] = what.convert(value)
    return [
        f"{_listed({name: config[name] for name in names})} have the same meaning here, so they cannot differ"
        for names in values.values()
        if len(set(names.values())) > 1
    ]


def _refusals(made: KafkaConfig, config: Mapping[str, Any]) -> list[str]:
    """Errors of the calls that take the arguments, with Kafka's names.

    A part is tried as a whole, because some values depend on others. Each error is reported with the smallest set of
    arguments that causes it; the rest is tried again, until there is no error.
    """
    wrong = []
    for part in get_args(Part):
        left = dict(made.part(part))
        while says := _refusal(part, left):
            guilty = left
            while fewer := next((each for each in _one_less(guilty) if _refusal(part, each) == says), None):
                guilty = fewer
            places = {(part, option) for option in guilty}
            names = {name: value for name, value in config.items() if _leads_to(name) in places}
            wrong.append(f"{_listed(names)}: {_in_kafkas_terms(says)}{_defaults_in(says, config)}")
            left = {option: value for option, value in left.items() if option not in guilty}
    return wrong


def _refusal(part: Part, options: Mapping[str, Any]) -> str:
    """The error of a client that is never opened; the user may pass more arguments later."""
    if not options:
        return ""
    try:
        match part:
            case "client":
                ClientOptions(**{"bootstrap": "localhost"} | dict(options))
            case "producer":
                _client().producer(**options)
            case "consumer":
                _client().consumer("any", **{"group": "any"} | dict(options))
            case "share_consumer":
                _client().share_consumer("any", **{"group": "any"} | dict(options))
    except Closed:
        pass
    except ConfigurationError as error:
        return str(error)
    return ""


def _client() -> "Client":
    from ottla.sdk.client import Client  # only here: few of Spark's queries need it to check options

    return Client(ClientOptions(bootstrap="localhost"), cast("DriverType", None))  # never opened: needs no driver


def _one_less(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{each: options[each] for each in options if each != without} for without in options]


def _listed(values: Mapping[str, Any]) -> str:
    return " and ".join(f"{name!r} ({_shown_value(name, value)!r})" for name, value in values.items())


def _shown_value(name: str, value: Any) -> Any:
    return without_user(value) if _leads_to(name) == ("client", "bootstrap") and isinstance(value, str) else value


def _in_kafkas_terms(text: str) -> str:
    """Replace the arguments' names with Kafka's, unless they are ordinary words, and seconds with milliseconds."""
    text = _ARGUMENT.sub(lambda found: _KAFKAS_NAMES.get(found[0], found[0]), text)
    text = re.sub(r"\b([\d.]+) s\b", lambda found: f"{_in_milliseconds(found[1])} ms", text)
    bounds = re.compile(r"a number of seconds from (\S+) to (\S+), not (\S+)")
    return bounds.sub(
        lambda found: "a number of milliseconds from {} to {}, not {}".format(*map(_in_milliseconds, found.groups())),
        text,
    )


_ARGUMENT = re.compile(r"\b[a-z]+_[a-z_]+\b")
_KAFKAS_NAMES = {what.option: name for name, what in reversed(MEANINGS.items()) if isinstance(what, To)}


def _in_milliseconds(seconds: float | str) -> str:
    return f"{float(seconds) * 1000:.10g}"


def _defaults_in(text: str, config: Mapping[str, Any]) -> str:
    """The defaults of the names that occur in ``text``, but not in ``config``."""
    client = _client()
    takers: dict[Part, Callable[..., Any]] = {
        "client": ClientOptions,
        "producer": client.producer,
        "consumer": client.consumer,
        "share_consumer": client.share_consumer,
    }
    given, says = {_leads_to(name) for name in config}, ""
    for option in dict.fromkeys(_ARGUMENT.findall(text)):
        name = _KAFKAS_NAMES.get(option, "")
        leads_to = _leads_to(name)
        if leads_to is not None and leads_to not in given:
            default = inspect.signature(takers[leads_to[0]]).parameters[leads_to[1]].default
            says += f" ({name} is {_in_milliseconds(default) if isinstance(default, float) else default} by default)"
    return says


def _combine(made: KafkaConfig, config: Mapping[str, Any]) -> list[str]:
    """Settle options that several names decide together; returns the errors."""
    wrong = _choose_level(made)
    consumer = made.consumer
    enabled, interval = consumer.pop("enable_auto_commit", None), consumer.pop("auto_commit", 5.0)
    if enabled:
        consumer["auto_commit"] = interval
    elif enabled is False and "auto.commit.interval.ms" in config:
        made.left_out["auto.commit.interval.ms"] = "enable.auto.commit is false"
    elif enabled is None and "auto.commit.interval.ms" in config:
        wrong.append("'auto.commit.interval.ms': ottla commits nothing automatically without enable.auto.commit=true")
    if "start" in consumer:
        consumer["reset"] = consumer["start"]
    return wrong


def _choose_level(made: KafkaConfig) -> list[str]:
    """Keep the level of the chosen compression; leave out other levels."""
    wrong, producer = [], made.producer
    chosen = producer.get("compression", "none").lower()
    for codec in ("gzip", "lz4", "zstd"):
        if codec not in producer:
            continue
        name, level = f"compression.{codec}.level", producer.pop(codec)
        if codec != chosen:
            made.left_out[name] = f"compression.type is {chosen}"
        elif producer.setdefault("compression_level", level) != level:
            wrong.append(f"'compression.level' and {name!r} have the same meaning here, so they cannot differ")
    if chosen == "none" and producer.get("compression_level") is not None:
        del producer["compression_level"]
        made.left_out["compression.level"] = "compression.type is none"
    return wrong
