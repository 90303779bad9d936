"""The options that every node command shares, and the reading of what they point to.

All flags are one source: a setting given by two of them, or by one flag twice, is refused like a
key that stands twice in a file. An option that click would silently overrule is one of them.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from kraftpy import logs
from kraftpy.clock import SystemClock
from kraftpy.config import (
    CONFIG_FILE_VARIABLE,
    Given,
    Settings,
    from_assignment,
    from_environment,
    resolve,
)
from kraftpy.config_files import from_file_text
from kraftpy.errors import ConfigError
from kraftpy.limits import CONFIG_FILE_CHARACTERS_MAX

# A flag of its own for a setting that people change often: option, setting, help.
_SHORTCUTS: Final = (
    ("--data-dir", "data.dir", "Keep everything in this directory."),
    ("--log-format", "logging.format", "auto, text or json."),
    ("--log-level", "logging.level", "debug, info, warning, error or critical."),
)


Shortcut = tuple[str, str, str]
Command = Callable[..., Any]


def settings_options(command: Command) -> Command:
    """Give a command --config, --set and the shortcuts; it receives the resolved `settings`."""
    return settings_options_and()(command)


def settings_options_and(*more: Shortcut) -> Callable[[Command], Command]:
    """As `settings_options`, with more shortcuts."""
    shortcuts = (*more, *_SHORTCUTS)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_settings(
            config_files: tuple[str, ...], assignments: tuple[str, ...], **others: Any
        ) -> object:
            flags = [
                Given(key, text, option)
                for option, key, _ in shortcuts
                for text in others.pop(_parameter(option))
            ]
            flags += [from_assignment(text, "--set") for text in assignments]
            settings = load_settings(flags, config_files, os.environ)
            configure_logging(settings)
            return command(settings=settings, **others)

        return _with_options(with_settings, shortcuts)

    return decorate


def _with_options(command: Command, shortcuts: Sequence[Shortcut]) -> Command:
    command = click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set any setting."
    )(command)
    for option, key, help_text in reversed(shortcuts):
        command = click.option(option, multiple=True, metavar="VALUE", help=f"{help_text} [{key}]")(
            command
        )
    return click.option(
        "--config",
        "config_files",
        multiple=True,
        metavar="FILE",
        help=f"Read settings (.toml or .properties) [{CONFIG_FILE_VARIABLE}]",
    )(command)


def load_settings(
    flags: Iterable[Given], config_files: Sequence[str], environment: Mapping[str, str]
) -> Settings:
    """The settings in force: flags, then the environment, then the config file."""
    path = _config_file(config_files, environment)
    return resolve(
        flags,
        from_environment(environment),
        from_file_text(_read(path), path) if path else (),
    )


def _config_file(config_files: Sequence[str], environment: Mapping[str, str]) -> str | None:
    if len(config_files) > 1:
        raise ConfigError("--config is given twice; settings come from one file")
    if "" in config_files:
        raise ConfigError("--config: expected the name of a file, not ''")
    return config_files[0] if config_files else environment.get(CONFIG_FILE_VARIABLE)


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
        with open(path, encoding="utf-8-sig") as file:  # Some editors put a BOM in front.
            text = file.read(CONFIG_FILE_CHARACTERS_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the config file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the config file is not UTF-8 text") from None
    if len(text) > CONFIG_FILE_CHARACTERS_MAX:
        raise ConfigError(f"{path}: a config file may have {CONFIG_FILE_CHARACTERS_MAX} characters")
    return text
