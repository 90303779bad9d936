"""The harness judges from outside: it shares no code with what it judges."""

from pathlib import Path

from tests.tidy.checks import imported_packages

SOURCES = sorted((Path(__file__).parents[2] / "jepsen-like").rglob("*.py"))


def test_the_harness_never_imports_kraftpy() -> None:
    assert len(SOURCES) > 20
    guilty = [path.name for path in SOURCES if "kraftpy" in imported_packages(path.read_text())]
    assert guilty == []


def test_an_import_would_be_seen() -> None:
    assert "kraftpy" in imported_packages("def f():\n    from kraftpy.wire import apis\n")
