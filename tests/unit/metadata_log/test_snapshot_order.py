"""Equal images are the same bytes in every process, whatever order its hashes have."""

import os
import subprocess
import sys

PROGRAM = """
import hashlib, json, random, sys
from kraftpy.metadata_log import EMPTY, encode_records, image_to_json, replay_all, snapshot_records
from kraftpy.metadata_log import records as r
from kraftpy.types import random_uuid
from tests.unit.metadata_log.makers import acl, brokers, config, controller, partition, quota
from tests.unit.metadata_log.makers import register, scram, token

rng = random.Random(7)
names = [f"topic-{n}" for n in range(200)]
ids = {name: random_uuid(rng) for name in names}
groups = []
for name in names:
    parts = [partition(n, topic_id=ids[name], last_known_elr=brokers(3)) for n in range(3)]
    groups.append([r.TopicRecord(name=name, topic_id=ids[name]), *parts, config("a", name, name)])
groups += [[register(n)] for n in range(20)] + [[controller(n)] for n in range(5)]
groups += [[scram(name)] for name in names] + [[token(name)] for name in names]
groups += [[quota(1.5, user=name)] for name in names] + [[quota(2.5, user=None)]]
groups += [[acl(random_uuid(rng))] for _ in range(50)]
features = [*names, "metadata.version"]
groups += [[r.FeatureLevelRecord(name=name, feature_level=2)] for name in features]
groups += [[r.ClearElrRecord(topic_name="")]]
random.Random(int(sys.argv[1])).shuffle(groups)
clear = groups.index([r.ClearElrRecord(topic_name="")])
groups.append(groups.pop(clear))
image = replay_all(EMPTY, [record for group in groups for record in group])
values = encode_records(snapshot_records(image))
digest = hashlib.sha256(b"".join(values))
digest.update(json.dumps(image_to_json(image)).encode())
digest.update("\\n".join(EMPTY.diff(image)).encode())
sys.stdout.write(f"{len(values)} {digest.hexdigest()}")
"""


def digest_in_another_process(hash_seed: str, order: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, order],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_equal_images_have_the_same_snapshot_whatever_the_hash_seed() -> None:
    runs = [("0", "1"), ("1", "2"), ("2", "3"), ("3", "1")]
    digests = {digest_in_another_process(seed, order) for seed, order in runs}
    assert len(digests) == 1
    count, _ = digests.pop().split()
    assert int(count) == 200 * 5 + 20 + 5 + 200 * 3 + 1 + 50 + 201
