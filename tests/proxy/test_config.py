from dataclasses import fields
from pathlib import Path

import pytest

from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.config_file import read_config
from ottla.proxy.topic_rule import Mode, TopicRule, never_applied, parse_rule

TEXTS = [field.name for field in fields(ProxyConfig) if field.name not in ("upstream", "tls", "sasl", "topics", "acls")]
TEXTS = [name for name in TEXTS if isinstance(getattr(ProxyConfig(upstream="kafka:1"), name), str | None)]
"""The options that are texts: an empty one is refused, because it is more likely an unset variable of a script."""
TEXTS.remove("first_node")


def test_a_rule_names_a_glob_a_mode_and_a_partitioner() -> None:
    assert parse_rule("flights=rewrite") == TopicRule(glob="flights", mode=Mode.REWRITE, partitioner="murmur2")
    assert parse_rule("audit-*=observe:crc32") == TopicRule(glob="audit-*", mode=Mode.OBSERVE, partitioner="crc32")


def test_a_rule_may_state_the_number_of_partitions() -> None:
    assert parse_rule("flights=rewrite:crc32:6") == TopicRule(
        glob="flights", mode=Mode.REWRITE, partitioner="crc32", partitions=6
    )
    assert parse_rule("flights=fan-out:crc32:6") == TopicRule(
        glob="flights", mode=Mode.FAN_OUT, partitioner="crc32", partitions=6
    )
    assert parse_rule("flights=rewrite::6") == TopicRule(glob="flights", mode=Mode.REWRITE, partitions=6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flights", "GLOB=MODE"),
        ("=rewrite", "begins with the topics' name"),
        ("flights=move", "is not observe, reject, rewrite, fan-out or copy"),
        ("flights=rewrite:md5", "is not one of murmur2, crc32"),
        ("flights=rewrite:", "is not one of murmur2"),
        ("flights=rewrite::", "'' is not a number of partitions"),
        ("flights=rewrite::six", "'six' is not a number of partitions"),
        ("flights=rewrite::6:7", "'6:7' is not a number of partitions"),
        ("flights=rewrite::" + "9" * 5000, "is not a number of partitions"),
        ("flights=rewrite::0", "must have 1 to 2147483647 partitions, not 0"),
        ("flights=rewrite::2147483648", "must have 1 to 2147483647 partitions"),
        ("__consumer_offsets=rewrite", "the brokers' own"),
        ("fli ghts=rewrite", "'fli ghts' matches no topic"),
        ("x" * 300 + "=rewrite", "matches no topic"),
    ],
)
def test_a_rule_that_cannot_be_used_says_what_would_do(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_rule(text)


@pytest.mark.parametrize(
    ("rules", "never"),
    [
        (["*=observe", "orders=rewrite"], ["orders=rewrite"]),
        (["a*=observe", "ab*=rewrite", "b=rewrite"], ["ab*=rewrite"]),
        (["a=observe", "a=rewrite"], ["a=rewrite"]),
        (["a?=observe", "ab=rewrite", "abc=rewrite"], ["ab=rewrite"]),
        (["orders=rewrite", "*=observe"], []),
        (["*=observe", "app-changelog=rewrite"], []),
    ],
)
def test_a_rule_that_never_applies_is_named(rules: list[str], never: list[str]) -> None:
    told = list(never_applied([parse_rule(each) for each in rules]))
    assert [each.split("'")[1] for each in told] == never


def test_a_rule_of_the_file_behind_one_of_the_command_line_is_told_apart() -> None:
    [told] = never_applied([parse_rule("*=observe"), parse_rule("orders=rewrite")], 1)
    assert told == "the rule 'orders=rewrite' never applies: '*=observe' on the command line comes first"


def test_a_hint_about_globs_is_for_lines_with_a_star(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    for text, hint in (("listen = \n", False), ('[topics]\naudit-* = "observe"\n', True)):
        file.write_text(text)
        with pytest.raises(ConfigurationError) as raised:
            ConfigFile.read(file)
        assert ("quotation marks" in str(raised.value)) is hint


def test_a_file_says_the_same_as_options(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(
        'upstream = "kafka:9092"\nlisten = "127.0.0.1:19092"\nmax-buffered = 2000000\ndelivery_timeout = 5\n'
        '[topics]\nflights = "rewrite"\n"audit-*" = "observe:crc32"\n'
    )
    assert read_config(ConfigFile.read(file)) == ProxyConfig(
        upstream="kafka:9092",
        listen="127.0.0.1:19092",
        max_buffered=2_000_000,
        delivery_timeout=5,
        topics=(parse_rule("flights=rewrite"), parse_rule("audit-*=observe:crc32")),
    )


def test_options_override_the_file_and_their_rules_come_first(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('upstream = "kafka:9092"\n[topics]\n"f*" = "observe"\n')
    config = read_config(
        ConfigFile.read(file), upstream="other:9092", listen=None, topics=(parse_rule("flights=rewrite"),)
    )
    assert (config.upstream, config.listen) == ("other:9092", "127.0.0.1:9092")
    assert [rule.glob for rule in config.topics] == ["flights", "f*"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("upstream = ", "is not TOML"),
        (
            'upstream = "u:1"\n[topics]\norders = "rewrite"\norders = "observe"',
            r": orders is there twice \(at end of document",
        ),
        ('[topics]\na = "rewrite"\n[topics]', r": \[topics\] is there twice \(at line 3"),
        ("upstream = kafka:9092", "; put texts in quotation marks$"),
        ("upstream = 127.0.0.1:9092", "; put texts in quotation marks$"),
        ('[topics]\naudit-* = "observe"', "put names with . in quotation marks"),
        ('listen = "127.0.0.1:1"', "has no upstream: add it"),
        ('upstream = "kafka:9092"\nspeed = 3', r"'speed' is not a setting of the proxy: docs/proxy\.md lists them"),
        ('upstream = "kafka:9092"\ndata = "d"', "'data' is not a setting of the proxy: it is one of the broker"),
        ('upstream = "kafka:9092"\nannounce = true', "it is only an option of the command line: --announce"),
        ("upstream = 9092", "upstream is 9092; it must be a text"),
        ('upstream = "kafka:9092"\nmax-batch = "64 MiB"', "it must be a number of bytes, such as 67108864"),
        ('upstream = "kafka:9092"\nmax-connections = "3"', "max-connections is '3'; it must be an integer"),
        ('upstream = "kafka:9092"\nstats-interval = "3"', "stats-interval is '3'; it must be a number of seconds"),
        ('upstream = "kafka:9092"\nmax-buffered = 3', "max-buffered is 3; it must be at least 1048576, which is 1 MiB"),
        ('upstream = "kafka:9092"\n[topics]\norders = true', 'orders is true; it must be a text such as "rewrite"'),
        ('upstream = "kafka:9092"\n[topics]\na.b = "rewrite"', "a name with dots stands in quotation marks"),
        ('upstream = "kafka:9092"\n[topics]\nstate = "/x"', r"state is an option: put it above \[topics\]"),
        ('upstream = "kafka:9092"\nmax-batch = 3000000', "must be at most 2097152, which is 2 MiB"),
        (
            'upstream = "kafka:9092"\nhealth = "127.0.0.1:9092"',
            "health has the port of listen, 9092: give health another",
        ),
        ('upstream = "kafka:9092"\ntopics = "flights"', r"\[topics\] is a table"),
        ('upstream = "kafka:9092"\n[topics]\nflights = "move"', "is not observe, reject, rewrite, fan-out or copy"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=says) as raised:
        read_config(ConfigFile.read(file))
    assert str(raised.value).count(str(file)) == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: No such file"):
        read_config(ConfigFile.read(tmp_path / "nowhere.toml"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"upstream": "kafka"}, "'kafka' has no port"),
        ({"upstream": "kafka:9092,"}, "'' is not host:port"),
        ({"listen": "::1:9092"}, "is ambiguous"),
        ({"listen": "0.0.0.0:9092"}, "advertise"),
        ({"listen": "host:99999"}, "has no such port"),
        ({"health": "8080"}, "is only a number, not host:port"),
        ({"connect_timeout": 0}, "connect-timeout is 0"),
        ({"max_buffered": 0}, "max-buffered is 0"),
        ({"max_request_bytes": 2**31}, "must be below 2147483648"),
        ({"first_node": -1}, "first-node is -1; node ids are 0 or more"),
        ({"advertise": "0.0.0.0"}, "clients need the name or address of one host"),
        ({"advertise": "a:b:c"}, "is not host or host:port"),
        ({"upstream": "localhost:9092"}, "is upstream's own address: .* such as --listen localhost:19092"),
        ({"upstream": "kafka:1,127.0.0.1:9092"}, "is upstream's own address"),
        ({"upstream": "localhost:9092", "listen": "0.0.0.0:9092", "advertise": "p"}, "is upstream's own address"),
        ({"health": "localhost:1", "report": "127.0.0.1:1"}, "report has the port of health"),
        ({"health": "localhost:9092"}, "health has the port of listen"),
        ({"listen": "0.0.0.0:9092", "advertise": "p", "report": "127.0.0.1:9092"}, "report has the port of listen"),
        *(({name: ""}, f"{name.replace('_', '-')} ") for name in TEXTS),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ProxyConfig(**{"upstream": "kafka:9092", **options})  # type: ignore[arg-type]  # wrong on purpose


def test_several_upstream_addresses_and_ipv6_are_taken() -> None:
    config = ProxyConfig(upstream="a:1, [::1]:2", listen="0.0.0.0:9092", advertise="proxy.example")
    assert config.advertised == ("proxy.example", None)


def test_the_advertised_port_may_differ_from_the_listening_one() -> None:
    config = ProxyConfig(upstream="a:1", listen="127.0.0.1:9092", advertise="proxy.example:19092")
    assert config.advertised == ("proxy.example", 19092)
    assert ProxyConfig(upstream="a:1", listen="127.0.0.1:9092").advertised == ("127.0.0.1", None)
