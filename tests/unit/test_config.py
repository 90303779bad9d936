"""Settings: who wins, what is refused, and that each refusal tells the reader what to change."""

import pytest

from kraftpy.config import (
    SETTINGS,
    Given,
    Settings,
    environment_name,
    from_assignment,
    from_environment,
    from_file_text,
    metadata_directory,
    resolve,
)
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


def test_a_key_like_no_other_points_to_the_list() -> None:
    assert "kraftpy config list" in refusal((Given("zzz", "1", "--set"),))


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
        assert setting.kind.parse(str(setting.default)) == setting.default, setting.key


def test_every_setting_is_readable_under_its_own_name() -> None:
    settings = Settings()
    for setting in SETTINGS:
        assert getattr(settings, setting.attribute) == setting.default


def test_keys_and_environment_names_are_unique_and_nest_in_toml() -> None:
    keys = [setting.key for setting in SETTINGS]
    assert len({environment_name(key) for key in keys}) == len(keys)
    # In TOML a key cannot be a value and a table at once.
    assert not [(a, b) for a in keys for b in keys if b.startswith(a + ".")]


def test_environment_sets_and_ignores_what_is_not_ours() -> None:
    environment = {"KRAFTPY_LOG_SEGMENT_BYTES": "4096", "HOME": "/x", "KRAFTPY_CONFIG": "a.toml"}
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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("log.segment.bytes = 2048", 1),
        ('"log.segment.bytes" = 2048', 1),
        ("# comment\n[log.segment]\nbytes = 2048", 3),
        ('[log]\nsegment = { bytes = "2048" }', None),
        ("[log]\nroll.ms = 5\nsegment.bytes = 2048 # here", 3),
    ],
)
def test_toml_may_nest_and_keeps_the_line(text: str, line: int | None) -> None:
    given = {item.key: item for item in from_file_text(text, "server.toml")}
    origin = f"server.toml:{line}" if line else "server.toml"
    assert given[KEY] == Given(KEY, "2048", origin)


@pytest.mark.parametrize("text", ["log.segment.bytes = 1.5", "log.segment.bytes = [1]"])
def test_toml_values_of_another_type_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.toml:1: 'log\.segment\.bytes' must be"):
        from_file_text(text, "server.toml")


def test_broken_toml_is_refused_with_its_position() -> None:
    with pytest.raises(ConfigError, match=r"server\.toml: not valid TOML: .*line 2"):
        from_file_text("a = 1\nb = \n", "server.toml")


def test_properties_as_java_reads_them() -> None:
    text = (
        "# comment\n"
        "! comment\n"
        "\n"
        "log.segment.bytes=2048\n"
        "  log.roll.ms : 5\n"
        "data.dir /var/\\\n"
        "    lib\n"
        "metadata.log.dir=C\\:\\u0041\\\\\n"
        "logging.level=\n"
    )
    assert from_file_text(text, "s.properties") == (
        Given("log.segment.bytes", "2048", "s.properties:4"),
        Given("log.roll.ms", "5", "s.properties:5"),
        Given("data.dir", "/var/lib", "s.properties:6"),
        Given("metadata.log.dir", "C:A\\", "s.properties:8"),
        Given("logging.level", "", "s.properties:9"),
    )


def test_a_properties_line_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s\.properties:2: expected key=value"):
        from_file_text("\n= 5\n", "s.properties")


def test_a_config_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must end in \.toml or \.properties"):
        from_file_text("", "server.yaml")


def test_metadata_directory_lies_in_its_own_or_in_the_data_directory() -> None:
    assert metadata_directory(Settings(data_dir="/d/")) == "/d/__cluster_metadata-0"
    both = Settings(data_dir="/d", metadata_log_dir="/m")
    assert metadata_directory(both) == "/m/__cluster_metadata-0"
