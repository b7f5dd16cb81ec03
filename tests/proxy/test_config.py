from pathlib import Path

import pytest

from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig, read_config
from ottla.proxy.topic_rule import Mode, TopicRule, parse_rule


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
        ("flights=move", "is not observe, reject, rewrite or fan-out"),
        ("flights=rewrite:md5", "is not one of murmur2, crc32"),
        ("flights=rewrite:", "is not one of murmur2"),
        ("flights=rewrite::", "'' is not a number of partitions"),
        ("flights=rewrite::six", "'six' is not a number of partitions"),
        ("flights=rewrite::6:7", "'6:7' is not a number of partitions"),
        ("flights=rewrite::" + "9" * 5000, "is not a number of partitions"),
        ("flights=rewrite::0", "must have 1 to 2147483647 partitions, not 0"),
        ("flights=rewrite::2147483648", "must have 1 to 2147483647 partitions"),
        ("__consumer_offsets=rewrite", "the brokers' own"),
    ],
)
def test_a_rule_that_cannot_be_used_says_what_would_do(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_rule(text)


def test_a_file_says_the_same_as_options(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(
        'upstream = "kafka:9092"\nlisten = "127.0.0.1:19092"\nmax-buffered = 1000\ndelivery_timeout = 5\n'
        '[topics]\nflights = "rewrite"\n"audit-*" = "observe:crc32"\n'
    )
    assert read_config(ConfigFile.read(file)) == ProxyConfig(
        upstream="kafka:9092",
        listen="127.0.0.1:19092",
        max_buffered=1000,
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
        ('[topics]\naudit-* = "observe"', "put names with . in quotation marks"),
        ('listen = "127.0.0.1:1"', "has no upstream: add it"),
        ('upstream = "kafka:9092"\nspeed = 3', "'speed' is not a setting: known are upstream, upstream-config, listen"),
        ("upstream = 9092", "must be a string"),
        ('upstream = "kafka:9092"\nmax-batch = "big"', "must be a number"),
        ('upstream = "kafka:9092"\nmax-batch = 3000000', "must be at most 2097152, which is 2 MiB"),
        ('upstream = "kafka:9092"\nhealth = "127.0.0.1:9092"', "give the probes another port"),
        ('upstream = "kafka:9092"\ntopics = "flights"', r"\[topics\] is a table"),
        ('upstream = "kafka:9092"\n[topics]\nflights = "move"', "is not observe, reject, rewrite or fan-out"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        read_config(ConfigFile.read(file))


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
