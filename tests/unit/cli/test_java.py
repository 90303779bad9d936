"""Java missing or too old is one line that says what to install."""

from pathlib import Path

import pytest

from kraftpy.cli.java import java_major, require_java
from kraftpy.errors import ConfigError


def fake_java(directory: Path, script: str) -> str:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_feature_release_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_java_home_is_asked_before_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", says("11.0.2"))
    new = fake_java(tmp_path / "new", says("17.0.1"))
    path = {"PATH": str(Path(old).parent)}
    assert require_java(17, {**path, "JAVA_HOME": str(tmp_path / "new")}) == new
    with pytest.raises(ConfigError) as caught:
        require_java(17, path)
    assert str(caught.value) == (
        f"{old} is Java 11, which is too old: "
        "install Java 17 or newer (Debian: openjdk-17-jre-headless)"
    )


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}, {"JAVA_HOME": ""}])
def test_no_java_says_what_to_install(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^Java was not found: install Java 17 or newer.*$"):
        require_java(17, environment)


def test_a_java_home_without_java_is_named_since_spark_looks_nowhere_else(tmp_path: Path) -> None:
    java = fake_java(tmp_path, says("17.0.1"))
    path = {"PATH": str(Path(java).parent)}
    with pytest.raises(ConfigError, match=r"^JAVA_HOME is /no/such/java, which has no bin/java: "):
        require_java(17, {**path, "JAVA_HOME": "/no/such/java"})
    assert require_java(17, path) == java


def test_a_java_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, "printf '\\377' >&2; exit 3")
    with pytest.raises(ConfigError, match="does not say which version"):
        require_java(17, {"JAVA_HOME": str(tmp_path)})
