"""What is shipped: the wheel holds kraftpy and nothing else, and declares what it imports."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.tidy import checks
from tests.tidy.test_source import FILES, PRODUCT, ROOT, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Declared and not imported yet: the part of kraftpy that will. Only ever shrinks.
WAITING: dict[str, str] = {}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in requirements}


# It is imported by pytest, so pytest is there.
PLUGIN = "kraftpy/pytest_plugin.py"


def imported(prefix: str = "kraftpy/", without: str = "kraftpy/audit/") -> set[str]:
    """The distributions that the modules under `prefix` import."""
    named = [name for name in PRODUCT if name.startswith(prefix) and name != PLUGIN]
    modules = [name for name in named if not name.startswith(without)]
    packages = set().union(*(checks.imported_packages(read(name)) for name in modules))
    packages -= sys.stdlib_module_names | {"kraftpy"}
    providers = packages_distributions()
    return {providers.get(package, [package])[0].lower().replace("_", "-") for package in packages}


def test_what_kraftpy_imports_is_declared_and_nothing_else_is() -> None:
    declared = names(PROJECT["dependencies"])
    assert imported() <= declared
    assert declared - imported() == set(WAITING), "a package that is imported leaves WAITING"


def test_the_audit_extra_covers_what_only_audits_import() -> None:
    assert imported("kraftpy/audit/", without="-") <= names(
        PROJECT["dependencies"] + EXTRAS["audit"]
    )


def test_a_planted_import_is_seen() -> None:
    text = "import a.b\nfrom c.d import e\ndef f():\n    import g\nfrom . import h"
    assert checks.imported_packages(text) == {"a", "c", "g"}


def test_the_light_install_has_neither_spark_nor_test_tools() -> None:
    light = names(PROJECT["dependencies"])
    assert not light & names(EXTRAS["audit"] + EXTRAS["test"] + EXTRAS["dev"])
    assert set(checks.pins(read("requirements/runtime.lock"))).isdisjoint(
        names(EXTRAS["audit"] + EXTRAS["test"] + EXTRAS["dev"])
    )


def test_every_dependency_has_its_reason() -> None:
    reasons = read("docs/adr/0001-dependencies.md")
    assert {name for name in names(PROJECT["dependencies"]) if name not in reasons} == set()


def test_the_wheel_holds_all_of_kraftpy_and_only_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name for name in FILES if name.startswith("kraftpy/")}
    assert "kraftpy/py.typed" in held
