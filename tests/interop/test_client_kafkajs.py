"""kafkajs from npm, against kraftpy."""

import os

from tests.interop.client_versions import KAFKAJS
from tests.interop.clusters import MESSAGE_BYTES_MAX, Served
from tests.interop.programs import HERE, cache_dir, fetch, need, run


def test_everything_that_kafkajs_does(dev: Served) -> None:
    need("node")
    packages = cache_dir(f"kafkajs-{KAFKAJS}")
    if not (packages / "node_modules" / "kafkajs" / "package.json").exists():
        need("npm")
        options = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
        install = ["npm", "install", *options, "--prefix", str(packages), f"kafkajs@{KAFKAJS}"]
        fetch(install, packages, f"kafkajs {KAFKAJS}")
    environment = {
        **os.environ,
        "NODE_PATH": str(packages / "node_modules"),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
    }
    command = ["node", str(HERE / "js" / "interop.js"), dev.bootstrap, "kafkajs"]
    run([*command, str(MESSAGE_BYTES_MAX)], packages, environment)
