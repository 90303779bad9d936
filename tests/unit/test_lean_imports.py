"""A process that imports leanly has what it needs, and later all that is installed."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from kraftpy.lean_imports import lean_imports

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from kraftpy.lean_imports import lean_imports
with lean_imports():
    import kraftpy.broker.node
asked = ("rich", "hypothesis", "importlib.metadata", "structlog", "kio", "crc32c")
loaded = [name for name in asked if name in sys.modules]
import importlib.metadata, rich.console, hypothesis
print(loaded, importlib.metadata.version("crc32c") != "unknown")
"""


def test_what_no_node_needs_is_not_imported_and_can_be_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['structlog', 'kio', 'crc32c'] True\n"


def test_garbage_is_collected_again_even_after_a_failure() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), lean_imports():
        raise ZeroDivisionError if not gc.isenabled() else AssertionError
    assert gc.isenabled()
