"""The rules about what nodes noted while they ran (A40, A41, A48, A52, A53, A59).

`notes` has the lines of `audit-notes.jsonl` with the node that wrote them; `at` numbers what one
`life` of a node noted.
"""

from typing import Final

SCHEMA: Final = (
    "kind string, life int, at int, node int, role string, epoch int, voted string, leader int, "
    "offset long, high_watermark long, digest string, topic_id string, partition int, "
    "leader_epoch int, partition_epoch int, epoch_start_offset long, end_offset long, isr int, "
    "min_isr int"
)

VIEWS: Final = {
    "samples": """
select *, lag(struct(life, leader_epoch, partition_epoch, min_isr, high_watermark)) over (
    partition by log, topic_id, partition, node order by life, at) as before,
  lag(high_watermark) over (partition by log, topic_id, partition, node, leader_epoch
    order by life, at) as last_of_epoch
from notes where kind = 'replica'""",
    # How far each leader epoch of a partition got, past its own start.
    "epoch_tops": """
select log, topic_id, partition, leader_epoch,
  min_by(epoch_start_offset, (node, life, at)) as start,
  min_by(high_watermark, (node, life, at)) as sampled, min_by(node, (node, life, at)) as node,
  max(if(high_watermark >= epoch_start_offset, high_watermark, null)) as top
from samples group by log, topic_id, partition, leader_epoch""",
    "unclean_epochs": """
select log, topic_id, partition, new.leader_epoch as leader_epoch from partition_changes
where is_elected and not has(array_union(old.isr, old.elr), new.leader)""",
    # What was committed before an epoch, since the last unclean election.
    "epochs_before": """
select *, max(top) over (partition by log, topic_id, partition, era order by leader_epoch
  rows between unbounded preceding and 1 preceding) as committed
from (
  select t.*, (select count(*) from unclean_epochs u where u.log = t.log
    and u.topic_id = t.topic_id and u.partition = t.partition
    and u.leader_epoch <= t.leader_epoch) as era
  from epoch_tops t where t.top is not null)""",
}

RULES: Final = {
    40: """
select log, 40 as rule, node, 0L as offset, epoch, concat('leader ', leader) as actual
from (
  select *, first(leader) over (partition by log, epoch order by node, life, at) as first_leader,
    row_number() over (partition by log, epoch, leader order by node, life, at) as nth
  from notes where kind = 'leader')
where leader <> first_leader and nth = 1""",
    41: """
select log, 41 as rule, node, 0L as offset, epoch, concat('after ', to_json(before)) as actual
from (
  select *, lag(struct(epoch, voted)) over (partition by log, node order by life, at) as before
  from notes where kind = 'vote')
where epoch < before.epoch
  or epoch = before.epoch and before.voted is not null and not (voted <=> before.voted)""",
    48: """
select log, 48 as rule, node, offset, -1 as epoch, concat('committed ', high_watermark) as actual
from notes where kind = 'truncation' and offset < high_watermark
union all
select l.log, 48, l.node, l.end_offset, -1, concat('committed ', max(n.offset))
from log_ends l join notes n on n.log = l.log and n.node = l.node and n.kind = 'high_watermark'
group by l.log, l.node, l.end_offset having l.end_offset < max(n.offset)""",
    52: """
select log, 52 as rule, node, offset, -1 as epoch, digest as actual
from (
  select *, lag(offset) over (partition by log, node, life order by at) as before,
    first(if(digest <> '', digest, null), true) over (
      partition by log, offset order by node, life, at) as first_digest
  from notes where kind = 'applied')
where offset < before or digest <> '' and digest <> first_digest""",
    53: """
select log, 53 as rule, node, high_watermark as offset, leader_epoch as epoch, topic_id, partition,
  concat('before ', last_of_epoch) as actual
from samples where last_of_epoch >= epoch_start_offset and high_watermark < last_of_epoch
union all
select log, 53, node, sampled, leader_epoch, topic_id, partition, concat('begins at ', start)
from epochs_before where start < committed""",
    59: """
select log, 59 as rule, node, high_watermark as offset, leader_epoch as epoch, topic_id, partition,
  concat('before ', before.high_watermark) as actual
from samples
where (life, leader_epoch, partition_epoch, min_isr)
    = (before.life, before.leader_epoch, before.partition_epoch, before.min_isr)
  and isr < min_isr and high_watermark > before.high_watermark""",
}
