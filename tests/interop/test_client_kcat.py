"""kcat as Debian ships it, with a librdkafka of some years ago, against kraftpy."""

import json
import shutil
import subprocess

import pytest

from tests.interop.client_versions import KCAT
from tests.interop.clusters import MESSAGE_BYTES_MAX, Served

pytestmark = pytest.mark.skipif(shutil.which(KCAT) is None, reason="kcat is not installed")
WAIT_S = 60


def kcat(served: Served, *args: str, given: str = "", fails: bool = False) -> str:
    command = [KCAT, "-b", served.bootstrap, "-X", f"client.id={KCAT}", *args]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_sent_comes_back_with_keys_and_headers(dev: Served, codec: str) -> None:
    topic = dev.topic(f"kcat-{codec}")
    lines = "".join(f"k{n}:v{n} and {n * 7} more\n" for n in range(50))
    options = ("-X", "enable.idempotence=true", "-z", codec, "-H", "a=1", "-H", "b=2")
    kcat(dev, "-P", "-t", topic, "-K", ":", "-p", "0", *options, given=lines)
    found = kcat(dev, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", "-p", "0")
    messages = [json.loads(line) for line in found.splitlines()]
    assert "".join(f"{m['key']}:{m['payload']}\n" for m in messages) == lines
    assert [m["offset"] for m in messages] == list(range(50))
    assert {tuple(m["headers"]) for m in messages} == {("a", "1", "b", "2")}


def test_the_cluster_is_listed(dev: Served) -> None:
    topic = dev.topic("kcat-list")
    kcat(dev, "-P", "-t", topic, given="x")
    listed = json.loads(kcat(dev, "-L", "-J"))
    assert [broker["id"] for broker in listed["brokers"]] == [101]
    assert topic in [each["topic"] for each in listed["topics"]]


def test_offsets_are_found_by_time(dev: Served) -> None:
    topic = dev.topic("kcat-time")
    kcat(dev, "-P", "-t", topic, "-p", "0", given="x\ny\n")
    assert kcat(dev, "-Q", "-t", f"{topic}:0:1").strip() == f"{topic} [0] offset 0"
    found = kcat(dev, "-C", "-t", topic, "-o", "s@1", "-e", "-q")
    assert found == "x\ny\n"


def test_a_message_that_is_too_big_is_refused(dev: Served) -> None:
    topic = dev.topic("kcat-big")
    big = ("-P", "-t", topic, "-X", "message.max.bytes=10000000")
    kcat(dev, *big, given="x" * (MESSAGE_BYTES_MAX - 200))
    error = kcat(dev, *big, given="x" * (MESSAGE_BYTES_MAX + 1), fails=True)
    assert "Message size too large" in error


def test_an_unknown_topic_is_told(dev: Served) -> None:
    topic = dev.topic("kcat-nowhere")
    error = kcat(dev, "-C", "-t", topic, "-e", "-X", "allow.auto.create.topics=false", fails=True)
    assert "Unknown topic" in error or "unknown" in error.lower()


def test_read_committed(dev: Served) -> None:
    topic = dev.topic("kcat-committed")
    kcat(dev, "-P", "-t", topic, given="x")
    options = ("-X", "isolation.level=read_committed")
    assert kcat(dev, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *options) == "x\n"
