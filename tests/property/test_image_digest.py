"""A digest that follows the changes is the digest of the image, and no two images share one."""

from dataclasses import replace

from hypothesis import given, settings

from kraftpy.metadata_log import EMPTY, ClusterDelta, MetadataRecord
from kraftpy.metadata_log.digest import ImageDigest
from tests.property.strategies import legal_logs

Log = list[list[MetadataRecord]]


@settings(max_examples=60, deadline=None)
@given(legal_logs())
def test_following_the_changes_is_walking_over_the_image(log: Log) -> None:
    image, digest = EMPTY, ImageDigest(EMPTY)
    seen = {digest.text: image.without_provenance()}
    for batch in log:
        delta = ClusterDelta(image)
        delta.replay_all(batch, image.end_offset)
        after = delta.image(image.end_offset + len(batch), 1, 0)
        digest.move(image, after, delta.changes())
        assert digest.text == ImageDigest(after).text
        plain = replace(after.without_provenance(), transaction=None)
        assert seen.setdefault(digest.text, plain) == plain
        image = after
