"""The pages tell the truth where a program can tell: links, commands, flags, targets, APIs.

What a page says of `kraftpy ...` and `make ...` in its code is looked up in the commands and the
Makefile. Each check is shown to catch a planted mistake.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs import compatibility
from kraftpy.cli.main import cli
from kraftpy.wire.apis import VersionRange

ROOT = Path(__file__).parents[2]
# docs/adr tells what was decided when; the rest tells what is.
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "deploy/README.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^[\s`]*(?:\$ )?(?:[A-Z]\w*=\S* )*(?:\S*/)?kraftpy +([^\n`#|&>]+)", re.MULTILINE
)
TARGET = re.compile(r"\bmake ([a-z][a-z-]+)")


def dead_links(text: str, page: Path) -> Iterator[str]:
    for pair in LINK.findall(text):
        target = (pair[0] or pair[1]).partition("#")[0]
        if target and "://" not in target and not (page.parent / target).exists():
            yield f"there is no {target}"


def unknown_commands(text: str) -> Iterator[str]:
    for code in CODE.findall(text):
        for written in COMMAND.findall(code):
            yield from _command_complaints(written)


def _command_complaints(written: str) -> Iterator[str]:
    words = shlex.split(written.replace("'", ""), comments=True)
    command: click.Command = cli
    context = click.Context(cli)
    while words and isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(context, words[0])
        if found is None:
            if not command.invoke_without_command:
                yield f"there is no kraftpy {written}"
            return
        command = found
        words.pop(0)
    known = {option for each in command.params for option in each.opts} | {"--help", "--version"}
    for word in words:
        flag = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", flag) and flag not in known:
            yield f"{flag} is no flag of kraftpy {written}"


def unknown_targets(text: str) -> Iterator[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in CODE.findall(text):
        for name in TARGET.findall(code):
            if name not in targets:
                yield f"there is no make {name}"


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [*dead_links(text, ROOT / name), *unknown_targets(text)] == []
    assert list(unknown_commands(text)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("see [this](docs/nothing.md)", "docs/nothing.md"),
        ('<img width="3" src="docs/none.png">', "docs/none.png"),
        ("`kraftpy begin` starts it", "kraftpy begin"),
        ("```\n$ kraftpy topics build orders\n```", "topics build"),
        ("```\n.venv/bin/kraftpy dev --broker 3\n```", "--broker is no flag"),
        ("`make everything`", "make everything"),
    ],
)
def test_a_planted_mistake_is_seen(text: str, said: str) -> None:
    found = [*dead_links(text, ROOT / "x.md"), *unknown_targets(text), *unknown_commands(text)]
    assert len(found) == 1
    assert said in found[0]


def test_the_table_of_apis_is_up_to_date() -> None:
    assert compatibility.PAGE.read_text(encoding="utf-8") == compatibility.current(), "make docs"


def test_an_api_that_is_not_served_is_named() -> None:
    served = compatibility.Served({3: VersionRange(0, 13)}, {})
    text = compatibility.page(served, "| client | version |\n|---|---|\n| x | 1 |\n\n| key |")
    assert "| 3 | Metadata | 0-13 | 0-13 | the broker |" in text
    assert "Not served: Produce, Fetch, " in text
    assert "| x | 1 |" in text
    assert "| key |" in text.split("## APIs of a broker")[1]
