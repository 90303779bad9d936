"""franz-go, built here, against kraftpy."""

import subprocess

from tests.interop.client_versions import FRANZ_GO
from tests.interop.clusters import MESSAGE_BYTES_MAX, Served
from tests.interop.programs import HERE, built, cache_dir, fetch, need, run

SOURCES = [HERE / "go" / name for name in ("go.mod", "go.sum", "main.go")]


def test_everything_that_franz_go_does(dev: Served) -> None:
    directory = cache_dir(f"franz-go-{FRANZ_GO}")
    program = directory / built(SOURCES)
    if not program.exists():
        need("go")
        fetch(["go", "mod", "download"], HERE / "go", f"franz-go {FRANZ_GO}")
        command = ["go", "build", "-o", str(program), "."]
        done = subprocess.run(
            command, cwd=HERE / "go", capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stderr
    run([str(program), dev.bootstrap, "franz-go", str(MESSAGE_BYTES_MAX)], directory)
