"""The options that every node command shares, and the reading of what they point to."""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from kraftpy import logs
from kraftpy.clock import SystemClock
from kraftpy.config import (
    CONFIG_FILE_VARIABLE,
    Given,
    Settings,
    from_assignment,
    from_environment,
    from_file_text,
    resolve,
)
from kraftpy.errors import ConfigError

# A flag of its own for a setting that people change often: option, setting, help.
_SHORTCUTS = (
    ("--data-dir", "data.dir", "Keep everything in this directory."),
    ("--log-format", "logging.format", "auto, text or json."),
    ("--log-level", "logging.level", "debug, info, warning, error or critical."),
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --config, --set and the shortcuts; it receives the resolved `settings`."""

    @functools.wraps(command)
    def with_settings(
        config_file: str | None, assignments: tuple[str, ...], **others: Any
    ) -> object:
        shortcuts = [
            Given(key, text, option)
            for option, key, _ in _SHORTCUTS
            if (text := others.pop(_parameter(option))) is not None
        ]
        settings = load_settings(shortcuts, assignments, config_file, os.environ)
        configure_logging(settings)
        return command(settings=settings, **others)

    for option, key, help_text in reversed(_SHORTCUTS):
        with_settings = click.option(option, metavar="VALUE", help=f"{help_text} [{key}]")(
            with_settings
        )
    with_settings = click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set any setting."
    )(with_settings)
    return click.option(
        "--config", "config_file", metavar="FILE", help="Read settings (.toml or .properties)."
    )(with_settings)


def load_settings(
    shortcuts: Iterable[Given],
    assignments: Iterable[str],
    config_file: str | None,
    environment: Mapping[str, str],
) -> Settings:
    """The settings in force: flags, then the environment, then the config file."""
    path = config_file or environment.get(CONFIG_FILE_VARIABLE)
    return resolve(
        shortcuts,
        [from_assignment(text, "--set") for text in assignments],
        from_environment(environment),
        from_file_text(_read(path), path) if path else (),
    )


def configure_logging(settings: Settings) -> None:
    """Send events to stderr as the settings say."""
    logs.configure(
        log_format=logs.choose_format(settings.logging_format, sys.stderr),
        level=settings.logging_level,
        stream=sys.stderr,
        clock=SystemClock(),
    )


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the config file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the config file is not UTF-8 text") from None
