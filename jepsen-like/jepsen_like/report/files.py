"""Reports on disk: one page for a run, and an index of a directory of runs.

The index is made from the result.json of each run below a directory, so runs may be added or made
again at any time. A file is replaced in one step: who looks at a page while it is made anew sees
the old one.
"""

import json
import os
from typing import Any, Final

from jepsen_like.checkers.judge import Judgement
from jepsen_like.report import index, page

RESULT: Final = "result.json"
REPORT: Final = "report.html"
INDEX: Final = "index.html"


def write_report(judgement: Judgement, path: str) -> None:
    """The page of one run."""
    _write(path, page.render(judgement))


def write_index(directory: str, title: str = "All runs") -> str:
    """index.html for the runs in the directories right below this one; its path."""
    runs = []
    for name in sorted(os.listdir(directory)):
        result = _read(os.path.join(directory, name, RESULT))
        if result is not None:
            runs.append(index.RunResult(result, f"{name}/{REPORT}"))
    path = os.path.join(directory, INDEX)
    _write(path, index.render(runs, title))
    return path


def _read(path: str) -> dict[str, Any] | None:
    """A result, or None if there is none; a run that was cut short has none, or half of one."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) and "verdict" in found else None


def _write(path: str, text: str) -> None:
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
