"""Settings reach the log, in the log's own terms."""

from kraftpy.config import Given, resolve
from kraftpy.storage.log_config import LogConfig


def config_of(**given: str) -> LogConfig:
    settings = [Given(key.replace("_", "."), text, "test") for key, text in given.items()]
    return LogConfig.of(resolve(settings))


def test_the_defaults_are_those_of_kafka() -> None:
    defaults, plain = config_of(), LogConfig()
    assert (defaults.segment, defaults.batch_bytes_max) == (plain.segment, plain.batch_bytes_max)
    assert (defaults.retention_bytes, defaults.retention_ms) == (None, plain.retention_ms)


def test_every_setting_arrives() -> None:
    config = config_of(
        log_segment_bytes="2048",
        log_roll_hours="2",
        log_index_interval_bytes="100",
        log_index_size_max_bytes="1200",
        log_flush_interval_messages="7",
        log_flush_interval_ms="50",
        log_retention_bytes="9999",
        log_retention_minutes="3",
        message_max_bytes="5000",
    )
    assert config.segment.segment_bytes == 2048
    assert config.segment.segment_ms == 2 * 3_600_000
    assert config.segment.index_interval_bytes == 100
    assert config.segment.index_bytes_max == 1200
    assert (config.flush_interval_messages, config.flush_interval_ms) == (7, 50)
    assert (config.retention_bytes, config.retention_ms) == (9999, 180_000)
    assert config.batch_bytes_max == 5000


def test_no_limit_is_none() -> None:
    assert config_of(log_retention_ms="-1").retention_ms is None
