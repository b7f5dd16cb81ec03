"""The configurations of a topic: valid values, and how its partitions apply them."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.topics.configs import CONFIGS, check_asked, check_configs, log_settings, unheeded
from ottla.codec.compression import LEVELS, Compression
from ottla.errors import InvalidConfig
from tests.brokerlite.machine import Machine


def settings(**configs: str) -> LogSettings:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    check_configs(given)
    return log_settings(lambda key: given.get(key, CONFIGS[key].default))


def test_the_defaults_are_those_of_the_settings() -> None:
    assert settings() == LogSettings()


@pytest.mark.parametrize(
    ("policy", "delete", "compacted"),
    [("delete", True, False), ("compact", False, True), ("compact,delete", True, True), ("delete,compact", True, True)],
)
def test_a_log_is_deleted_compacted_or_both(policy: str, delete: bool, compacted: bool) -> None:
    made = settings(cleanup_policy=policy)
    assert (made.delete, made.compacted) == (delete, compacted)


@pytest.mark.parametrize(
    ("configs", "compression", "level"),
    [
        ({"compression_type": "producer", "compression_gzip_level": "9"}, None, None),
        ({"compression_type": "uncompressed"}, Compression.NONE, None),
        ({"compression_type": "snappy"}, Compression.SNAPPY, None),
        ({"compression_type": "gzip"}, Compression.GZIP, None),
        ({"compression_type": "gzip", "compression_gzip_level": "9"}, Compression.GZIP, 9),
        ({"compression_type": "lz4"}, Compression.LZ4, None),
        ({"compression_type": "lz4", "compression_lz4_level": "3"}, Compression.LZ4, 3),
        ({"compression_type": "lz4", "compression_lz4_level": "17"}, Compression.LZ4, 12),
        ({"compression_type": "zstd"}, Compression.ZSTD, 3),
        ({"compression_type": "zstd", "compression_zstd_level": "-7"}, Compression.ZSTD, -7),
    ],
)
def test_a_level_of_kafkas_is_one_of_our_libraries(
    configs: dict[str, str], compression: Compression | None, level: int | None
) -> None:
    made = settings(**configs)
    assert (made.compression, made.compression_level) == (compression, level)
    if level is not None and compression is not None:
        assert LEVELS[compression][0] <= level <= LEVELS[compression][1]


@pytest.mark.parametrize(
    "configs",
    [
        {"compression.gzip.level": "0"},
        {"compression.gzip.level": "1,2"},
        {"compression.lz4.level": "18"},
        {"compression.zstd.level": "23"},
        {"message.timestamp.type": "CreateTime,LogAppendTime"},
        {"min.cleanable.dirty.ratio": "1.1"},
        {"min.cleanable.dirty.ratio": "nan"},
        {"segment.bytes": "2147483648"},
        {"retention.ms": "9223372036854775808"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    ],
)
def test_a_value_that_kafka_refuses_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        check_configs(configs)


@pytest.mark.parametrize("size", ["5", "2000", "2147483648"])
def test_an_error_names_the_sizes_of_segments_that_clients_may_ask_for(size: str) -> None:
    with pytest.raises(InvalidConfig, match=f"segment.bytes is {size}; it must be 1048576 to 2147483647"):
        check_asked(check_configs({"segment.bytes": size}))


def test_a_compacted_log_is_rolled_in_time_for_its_longest_lag() -> None:
    assert settings(cleanup_policy="compact", max_compaction_lag_ms="1000").segment_ms == 1000
    assert settings(cleanup_policy="delete", max_compaction_lag_ms="1000").segment_ms == LogSettings().segment_ms


def test_a_configuration_without_effect_causes_a_warning_at_the_creation_and_at_each_start(
    tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level(logging.WARNING, "ottla.brokerlite")
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 1, {"file.delete.delay.ms": "5", "retention.ms": "5", "segment.ms": "7"})
    first = caplog.messages.copy()
    assert ["file.delete.delay.ms" in each for each in first] == [True]
    caplog.clear()
    machine.restart().folder.abandon()
    assert caplog.messages == first


def test_the_default_of_a_configuration_without_effect_causes_no_warning() -> None:
    assert unheeded({"file.delete.delay.ms": "60000", "unclean.leader.election.enable": "true"}) == [
        "unclean.leader.election.enable"
    ]
