"""Config files: what TOML and .properties say, and what is refused."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.config import Given, resolve
from kraftpy.config_files import from_file_text
from kraftpy.errors import ConfigError

KEY = "log.segment.bytes"


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
    found = {item.key: item for item in from_file_text(text, "server.toml")}
    origin = f"server.toml:{line}" if line else "server.toml"
    assert found[KEY] == Given(KEY, "2048", origin)


def test_a_key_that_another_begins_with_is_written_in_quotes() -> None:
    text = '"max.connections" = 9\nmax.connections.per.ip = 3\n'
    found = resolve(from_file_text(text, "server.toml"))
    assert (found.max_connections, found.max_connections_per_ip) == (9, 3)


@pytest.mark.parametrize("value", ["1.5", "[1]", "{}", "2026-01-31", "inf", "[[]]"])
def test_toml_values_of_another_type_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.toml:1: 'log\.segment\.bytes' must be"):
        from_file_text(f"log.segment.bytes = {value}", "server.toml")


def test_an_empty_table_is_nothing_where_settings_live_and_unknown_elsewhere() -> None:
    assert from_file_text("[log]\n[log.segment]\n", "server.toml") == ()
    with pytest.raises(ConfigError, match=r"unknown setting 'logs\.segment'; did you mean log\."):
        resolve(from_file_text("[logs.segment]\n", "server.toml"))


def test_a_key_set_by_two_spellings_in_one_toml_file_is_refused() -> None:
    text = "'log.segment.bytes' = 2048\n[log.segment]\nbytes = 4096\n"
    with pytest.raises(ConfigError, match=r"^log\.segment\.bytes is set twice"):
        resolve(from_file_text(text, "server.toml"))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        ".".join("a" * 5000) + " = 1",
        "log.roll.ms = " + "9" * 5000,
        "log.roll.ms = 1\nlog.roll.ms = 2",
        "log.roll.ms = 08",
        "\x00",
    ],
)
def test_toml_that_is_hostile_or_broken_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^server\.toml: not valid TOML: [^\n]+$"):
        from_file_text(text, "server.toml")


@settings(deadline=None)
@given(st.text(), st.sampled_from(["s.toml", "s.properties"]))
def test_any_text_is_read_or_refused_by_name(text: str, path: str) -> None:
    with suppress(ConfigError):
        resolve(from_file_text(text, path))


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
