"""Settings: who wins, what is refused, and that each refusal tells the reader what to change."""

import re

import pytest

from kraftpy.config import (
    SETTINGS,
    Given,
    Settings,
    from_assignment,
    from_environment,
    metadata_directory,
    resolve,
    retention_ms,
    roll_ms,
)
from kraftpy.config_rows import environment_name
from kraftpy.errors import ConfigError

KEY = "log.segment.bytes"
FLAG = (Given(KEY, "1111", "--set"),)
ENVIRONMENT = (Given(KEY, "2222", "environment variable KRAFTPY_LOG_SEGMENT_BYTES"),)
FILE = (Given(KEY, "3333", "server.toml:1"),)


def refusal(*layers: tuple[Given, ...]) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(*layers)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("layers", "value"),
    [
        ((FLAG, ENVIRONMENT, FILE), 1111),
        (((), ENVIRONMENT, FILE), 2222),
        (((), (), FILE), 3333),
        (((), (), ()), 1024**3),
    ],
)
def test_the_strongest_source_wins(layers: tuple[tuple[Given, ...], ...], value: int) -> None:
    assert resolve(*layers).log_segment_bytes == value


def test_a_source_that_loses_is_still_checked() -> None:
    message = refusal(FLAG, (), (Given(KEY, "many", "server.toml:9"),))
    assert message.startswith("server.toml:9: log.segment.bytes must be a whole number")
    assert "'many'" in message


def test_unknown_key_names_its_origin_and_the_nearest_key() -> None:
    message = refusal((Given("log.segment.byte", "1", "server.properties:4"),))
    assert message == (
        "server.properties:4: unknown setting 'log.segment.byte'; did you mean log.segment.bytes?"
    )


def test_a_key_like_no_other_names_the_nearest_and_the_list() -> None:
    assert re.fullmatch(
        r"--set: unknown setting 'zzz'; the nearest is [a-z.]+, `kraftpy config list` shows all",
        refusal((Given("zzz", "1", "--set"),)),
    )


def test_a_key_of_any_length_is_refused_at_once_and_on_a_short_line() -> None:
    assert len(refusal((Given("log." * 1_000_000, "1", "--set"),))) < 250


@pytest.mark.parametrize("text", ["", "1.5", "1_024", "1KB", "0x400", "1023", "2147483648", "٣٣٣٣"])
def test_a_number_out_of_bounds_or_not_a_number_is_refused(text: str) -> None:
    assert "from 1024 to 2147483647" in refusal((Given(KEY, text, "--set"),))


@pytest.mark.parametrize("text", ["1024", " 1024 ", "2147483647"])
def test_the_bounds_themselves_are_allowed(text: str) -> None:
    assert resolve((Given(KEY, text, "--set"),)).log_segment_bytes == int(text)


def test_a_refused_value_is_shown_on_one_short_line() -> None:
    message = refusal((Given(KEY, "a\nb" * 1000, "--set"),))
    assert len(message) < 250


def test_a_key_set_twice_in_one_source_is_refused() -> None:
    message = refusal((Given(KEY, "2000", "a.properties:1"), Given(KEY, "3000", "a.properties:7")))
    assert message == f"{KEY} is set twice: a.properties:1 and a.properties:7; remove one"


def test_choices_ignore_case_and_refuse_others() -> None:
    assert resolve((Given("logging.format", "JSON", "--set"),)).logging_format == "json"
    assert "one of auto, text, json" in refusal((Given("logging.format", "xml", "--set"),))


def test_every_default_is_a_value_that_its_own_setting_allows() -> None:
    for setting in SETTINGS:
        assert (
            setting.default is None or setting.kind.parse(str(setting.default)) == setting.default
        ), setting.key


def test_every_setting_is_readable_under_its_own_name() -> None:
    settings = Settings()
    for setting in SETTINGS:
        assert getattr(settings, setting.attribute) == setting.default


WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("given", "kept_ms"),
    [
        ({}, WEEK_MS),
        ({"log.retention.hours": "2"}, 2 * 3600 * 1000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * 60 * 1000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.ms": "-1"}, -1),
    ],
)
def test_retention_takes_the_finest_unit_as_kafka_does(given: dict[str, str], kept_ms: int) -> None:
    layer = [Given(key, text, "--set") for key, text in given.items()]
    assert retention_ms(resolve(layer)) == kept_ms


def test_roll_time_takes_the_finest_unit_as_kafka_does() -> None:
    hours, ms = Given("log.roll.hours", "2", "--set"), Given("log.roll.ms", "5", "--set")
    assert roll_ms(Settings()) == WEEK_MS
    assert roll_ms(resolve([hours])) == 2 * 3600 * 1000
    assert roll_ms(resolve([hours, ms])) == 5


def test_a_stronger_source_wins_over_finer_units_of_a_weaker_one() -> None:
    flag = (Given("log.retention.hours", "1", "--set"),)
    file = (Given("log.retention.ms", "5", "a.toml:1"), Given("log.retention.bytes", "9", "a"))
    settings = resolve(flag, file)
    assert retention_ms(settings) == 3600 * 1000
    assert settings.log_retention_bytes == 9
    assert retention_ms(resolve((), flag[:0], file)) == 5


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
@pytest.mark.parametrize("text", ["0", "-2", ""])
def test_retention_for_no_time_at_all_is_refused(unit: str, text: str) -> None:
    message = refusal((Given(f"log.retention.{unit}", text, "--set"),))
    assert "must be -1, or a whole number from 1 to " in message


def test_keys_and_environment_names_are_unique_and_nest_in_toml() -> None:
    keys = [setting.key for setting in SETTINGS]
    assert len({environment_name(key) for key in keys}) == len(keys)
    # In TOML a key cannot be a value and a table at once. Where Kafka's names are just that, one
    # of them is written in quotes.
    clashes = [(a, b) for a in keys for b in keys if b.startswith(a + ".")]
    assert clashes == [("max.connections", "max.connections.per.ip")]


def test_environment_sets_and_ignores_what_is_not_ours() -> None:
    others = {"HOME": "/x", "KRAFTPY_CONFIG": "a.toml", "KRAFTPY_BOOTSTRAP_SERVER": "here:9092"}
    environment = {"KRAFTPY_LOG_SEGMENT_BYTES": "4096", **others}
    assert from_environment(environment) == (
        Given(KEY, "4096", "environment variable KRAFTPY_LOG_SEGMENT_BYTES"),
    )


def test_unknown_environment_variable_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean KRAFTPY_LOG_SEGMENT_BYTES"):
        from_environment({"KRAFTPY_LOG_SEGMENTS_BYTES": "1"})


def test_assignment_splits_at_the_first_equals_sign() -> None:
    assert from_assignment("data.dir=/a=b", "--set") == Given("data.dir", "/a=b", "--set")
    with pytest.raises(ConfigError, match=r"--set: expected key=value, not 'data\.dir'"):
        from_assignment("data.dir", "--set")


def test_metadata_directory_lies_in_its_own_or_in_the_data_directory() -> None:
    assert metadata_directory(Settings(data_dir="/d/")) == "/d/__cluster_metadata-0"
    both = Settings(data_dir="/d", metadata_log_dir="/m")
    assert metadata_directory(both) == "/m/__cluster_metadata-0"


def test_every_choice_that_is_offered_is_accepted_as_it_is_written() -> None:
    for each in SETTINGS:
        if each.kind.allowed.startswith("one of "):
            for choice in each.kind.allowed.removeprefix("one of ").split(", "):
                assert each.kind.parse(choice) == choice, each.key
