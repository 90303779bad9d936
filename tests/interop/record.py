"""Run every client against kraftpy and write docs/clients.md: which versions it really sent.

`make clients` runs it. A client that cannot be run here is an error: the page would lose it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import kio.schema.index

from kraftpy.broker.api_table import KNOWN
from tests.interop.client_versions import OTHERS, PYTHON, tested_versions
from tests.interop.recorder import Sent

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
HEAD = """\
# Clients

Which clients are tested against kraftpy, and which version of which API each of them sent while it
produced, consumed and administered. Recorded by a proxy between them and the brokers; every request
was answered. `make clients` runs them all and writes this page.

| client | version |
|---|---|
"""


def api_name(key: int) -> str:
    """As Kafka calls it."""
    module = kio.schema.index.api_key_map[key]
    return "".join(part.capitalize() for part in module.split("_"))


def record() -> list[Sent]:
    """Run the tests of all clients in one process; what they were served."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "sent.json")
        tests = sorted(str(each) for each in Path(__file__).parent.glob("test_client_*.py"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-rs", *tests]
        environment = {**os.environ, "INTEROP_RECORD": path}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        with open(path) as file:
            return [Sent(*each) for each in json.load(file)]


def page(sent: list[Sent], versions: dict[str, str]) -> str:
    """Markdown: the clients, then a row for each API."""
    by_api: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for client, key, version in sorted(sent):
        if client in versions:
            by_api[key][client].append(version)
    clients = [name for name in versions if any(name in row for row in by_api.values())]
    lines = [f"| {name} | {versions[name]} |" for name in clients]
    lines += ["", f"| key | API | served | {' | '.join(clients)} |"]
    lines += ["|---" * (3 + len(clients)) + "|"]
    for key, row in sorted(by_api.items()):
        cells = [", ".join(map(str, row[name])) for name in clients]
        served = f"{KNOWN[key].min_version}-{KNOWN[key].max_version}"
        lines.append(f"| {key} | {api_name(key)} | {served} | {' | '.join(cells)} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    sent = record()
    missing = {*PYTHON, *OTHERS} - {each.client for each in sent}
    if missing:
        sys.exit(f"not recorded: {', '.join(sorted(missing))}; {PAGE.name} is left as it is")
    PAGE.write_text(page(sent, tested_versions()))


if __name__ == "__main__":
    main()
