"""The source keeps the house rules, and each rule is shown to catch what it forbids.

EXCEPTIONS only ever shrinks: an entry that is no longer needed must be removed.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy import checks

ROOT = Path(__file__).parents[2]
Check = Callable[[str], Iterator[str]]

# (rule, file): why it may break the rule.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("asked_the_time", "kraftpy/clock.py"): "it is the clock",
    ("broad_excepts", "kraftpy/quorum/raft/driver.py"): "where a node's own thread ends",
    ("broad_excepts", "kraftpy/network/connection.py"): "a bug in an answer costs one connection",
    ("broad_excepts", "kraftpy/broker/connection.py"): "a bug in an answer costs one connection",
    ("broad_excepts", "kraftpy/quorum/controller_loop.py"): "a bug in a callback ends the node",
    ("files_past_the_layer", "kraftpy/storage/file_layer.py"): "it is the layer",
}

# Modules that wait for the command that will use them.
WAITING: dict[str, str] = {}


def tracked_files() -> list[str]:
    """Files that git knows or would add; all files where there is no git, as in an archive."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = done.stdout.splitlines() if done.returncode == 0 else []
    if not names:
        skip = re.compile(r"(^|/)(\.git|\.venv|\.hypothesis|\.?\w+_cache|__pycache__)/")
        paths = (str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file())
        names = [name for name in paths if not skip.search(name)]
    return sorted(name for name in names if (ROOT / name).is_file())


# Recordings and pictures: no text, and nothing to read in them.
BINARY = (".log", ".checkpoint", ".png")
FILES = [name for name in tracked_files() if not name.endswith(BINARY)]
PYTHON = [name for name in FILES if name.endswith(".py")]
PRODUCT = [name for name in PYTHON if name.startswith("kraftpy/")]
LOGS = [name for name in PRODUCT if name.startswith(("kraftpy/storage/", "kraftpy/metadata_log/"))]
SHIPPED = [name for name in FILES if not name.startswith("tests/tidy/")]  # These name the rule.
INITS = [name for name in PYTHON if name.endswith("__init__.py")]

# Rule: its check, the files that it holds for, and violations that it must catch.
RULES: dict[str, tuple[Check, list[str], list[str]]] = {
    "long_lines": (checks.long_lines, PYTHON, ["x = 1  # " + "a" * 100]),
    "long_module": (checks.long_module, PYTHON, ["x = 1\n" * 501]),
    "long_functions": (checks.long_functions, PYTHON, ["def f():\n" + "    x = 1\n" * 50]),
    "unfinished_marks": (
        checks.unfinished_marks,
        FILES,
        ["# FIX" + "ME: later", "# TO" + "DO: later", "# TO" + "DO(me): later"],
    ),
    "missing_docstring": (checks.missing_docstring, PRODUCT, ["x = 1"]),
    "code_in_init": (checks.code_in_init, INITS, ["def f(): ...", "x = 1", "f()"]),
    "asked_the_time": (
        checks.asked_the_time,
        PRODUCT,
        [
            "import os, time",
            "from time import monotonic",
            "x = datetime.now(UTC)",
            "f = datetime.now",
        ],
    ),
    "files_past_the_layer": (
        checks.files_past_the_layer,
        LOGS,
        [
            "os.fsync(3)",
            "open('x')",
            "os.path.exists('x')",
            "from pathlib import Path",
            "from os import fsync",
            "import mmap",
        ],
    ),
    "broad_excepts": (
        checks.broad_excepts,
        PRODUCT,
        [f"try: f()\nexcept{what}: g()" for what in ("", " Exception", " BaseException as e")],
    ),
    "machine_paths": (checks.machine_paths, SHIPPED, ["see /work/main/x", "a = '/root/x'"]),
    "registries": (
        checks.registries,
        SHIPPED,
        ["--index-url https://x.example/simple", "--trusted-host x", "http://nexus.x/simple"],
    ),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES)
def test_the_source_keeps_the_rule(rule: str) -> None:
    check, names, _ = RULES[rule]
    assert names
    broken = {name: found for name in names if (found := list(check(read(name))))}
    allowed = {name for r, name in EXCEPTIONS if r == rule}
    assert {name: found for name, found in broken.items() if name not in allowed} == {}
    assert allowed <= set(broken), "an exception that is no longer needed must go"


PLANTED = [(rule, violation) for rule, (_, _, planted) in RULES.items() for violation in planted]
GOOD = """\
'''What it owns.'''

import os
from a.b import c

__all__ = ["c"]
"""
GOOD_CODE = """\
def copy(files, clock):
    try:
        files.open(os.path.join("a", "b"))
    except ValueError:
        return clock.now_ms()
    except BaseException:
        files.close()
        raise
"""


@pytest.mark.parametrize(("rule", "violation"), PLANTED)
def test_the_rule_catches_a_planted_violation(rule: str, violation: str) -> None:
    assert list(RULES[rule][0](violation))


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_lets_good_source_pass(rule: str) -> None:
    code = "" if rule == "code_in_init" else GOOD_CODE
    assert list(RULES[rule][0](GOOD + code)) == []


def modules() -> dict[str, str]:
    names = {n: n.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for n in PRODUCT}
    return {module: read(name) for name, module in names.items()}


def library_roots() -> list[str]:
    """Where users come in: the command, and the packages that they import in programs."""
    return [
        "kraftpy.cli.main",
        "kraftpy.cli.spark_audit",
        "kraftpy.testing",
        "kraftpy.testing.node",
        "kraftpy.pytest_plugin",
        "kraftpy.storage",
        "kraftpy.metadata_log",
        "kraftpy.quorum",
        "kraftpy.wire",
        "kraftpy.audit.rules",
    ]


def test_every_module_is_reached_by_something() -> None:
    dead = checks.dead_modules(modules(), library_roots())
    assert [name for name in dead if name not in WAITING] == []
    assert set(WAITING) <= set(dead), "a module that is used now must leave WAITING"


def test_a_planted_dead_module_is_seen() -> None:
    planted = {
        "a": "",
        "a.main": "from a import used\nLAZY = 'a.lazy'",
        "a.used": "",
        "a.lazy": "",
        "a.dead": "import a.used",
    }
    assert checks.dead_modules(planted, ["a.main"]) == ["a.dead"]


def test_every_make_target_is_documented() -> None:
    assert list(checks.undocumented_targets(read("Makefile"))) == []
    assert list(checks.undocumented_targets("run: x ## Run it\nlost: y\n\techo\nA := b\n"))


def test_the_locks_agree_and_pin_every_file_by_hash() -> None:
    runtime, everything = read("requirements/runtime.lock"), read("requirements/test.lock")
    assert checks.pins(runtime).items() <= checks.pins(everything).items()
    assert {"click", "hatchling", "editables"} <= set(checks.pins(runtime))
    assert "pyspark" not in checks.pins(runtime)
    assert checks.requirements_without_hash(runtime + "\n" + everything) == []
    assert "://" not in runtime + everything


def test_a_requirement_without_a_hash_is_seen() -> None:
    lock = "# made\na==1 \\\n    --hash=sha256:00\n    # via b\nb==2\n    # via c\n"
    assert checks.pins(lock) == {"a": "1", "b": "2"}
    assert checks.requirements_without_hash(lock) == ["b==2"]
