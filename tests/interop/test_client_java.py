"""The Java client, compiled here against kafka-clients from Maven."""

import os
import subprocess

from tests.interop.client_versions import JAVA
from tests.interop.clusters import MESSAGE_BYTES_MAX, Served
from tests.interop.programs import HERE, built, cache_dir, fetch, need, run


def classpath() -> str:
    """Of kafka-clients and what it needs; Maven is asked only once."""
    path = cache_dir(f"java-{JAVA}") / "classpath"
    if not path.exists() or not all(map(os.path.exists, path.read_text().split(os.pathsep))):
        command = [
            *("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "java" / "pom.xml")),
            *(f"-Dclients.version={JAVA}", f"-Dmdep.outputFile={path}"),
            "dependency:build-classpath",
        ]
        need("mvn")
        fetch(command, path.parent, f"kafka-clients {JAVA}")
    return path.read_text()


def program(name: str) -> list[str]:
    """The command that runs one of the programs here, which takes arguments behind it."""
    need("java", "javac")
    libraries, source = classpath(), HERE / "java" / f"{name}.java"
    directory = cache_dir(f"java-{JAVA}") / built([source])
    if not (directory / f"{name}.class").exists():
        command = ["javac", "-cp", libraries, "-d", str(directory), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
    path = os.pathsep.join((str(directory), libraries))
    # One compiler is quicker for a program of seconds.
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", path, name]


def test_everything_that_the_java_client_does(dev: Served) -> None:
    run([*program("Interop"), dev.bootstrap, "java", str(MESSAGE_BYTES_MAX)])
