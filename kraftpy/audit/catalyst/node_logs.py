"""The rules about the logs of nodes, from batch headers and control records (A38 to A40, A42, A46,
A47, A49, A51).

`good_batches` has what is not damaged, of every node, in the order of its files.
"""

from typing import Final

VIEWS: Final = {
    "good_batches": """
select *, lag(end_offset) over log_order as due, lag(epoch) over log_order as last_epoch,
  damages > lag(damages) over log_order as is_over_damage
from (select *, count_if(damage is not null) over (
  partition by log, node order by path, position) as damages from all_batches)
where damage is null
window log_order as (partition by log, node order by path, position)""",
    "log_ends": """
select b.log, b.node, s.start_offset, b.end_offset, greatest(coalesce(w.high_watermark, -1),
  coalesce(max(f.end_offset), -1)) as high_watermark
from (select log, node, max(end_offset) as end_offset from good_batches group by log, node) b
join log_starts s on s.log = b.log and s.node = b.node
left join watermarks w on w.log = b.log and w.node = b.node
left join snapshot_files f on f.log = b.log and f.node = b.node and f.end_offset <= b.end_offset
group by b.log, b.node, s.start_offset, b.end_offset, w.high_watermark""",
    "leader_changes": """
select log, node, offset, epoch, leader from controls where kind = 'LeaderChange'""",
    "epoch_starts": """
select b.*, coalesce(c.offsets, array()) as offsets,
  offset = min(offset) over (partition by b.log, b.node) and offset > 0 as is_cut
from (
  select log, node, epoch, min_by(base_offset, struct(path, position)) as offset
  from good_batches group by log, node, epoch) b
left join (
  select log, node, epoch, array_sort(collect_list(offset)) as offsets
  from leader_changes group by log, node, epoch) c using (log, node, epoch)""",
    # Every batch beside the one that the first node has at the same offset.
    "pairs": """
select *, (crc, size, end_offset) = (first.crc, first.size, first.end_offset) as is_same
from (
  select b.*, l.high_watermark, first(struct(b.node, b.epoch, b.crc, b.size, b.end_offset,
    l.high_watermark)) over (partition by b.log, b.base_offset order by b.node) as first
  from good_batches b join log_ends l on l.log = b.log and l.node = b.node)
where node <> first.node""",
}

RULES: Final = {
    38: """
select log, 38 as rule, node, base_offset as offset, epoch, concat('due was ', due) as actual
from good_batches where base_offset <> due and not (base_offset > due and is_over_damage)""",
    39: """
select log, 39 as rule, node, base_offset as offset, epoch, concat('after ', last_epoch) as actual
from good_batches where epoch < last_epoch
union all
select log, 39, node, offset, epoch, 'no LeaderChange'
from epoch_starts where epoch > 0 and not is_cut and not (get(offsets, 0) <=> offset)
union all
select log, 39, node, extra, epoch, 'another LeaderChange'
from (select *, explode(slice(offsets, 2, greatest(size(offsets) - 1, 0))) as extra
  from epoch_starts)""",
    40: """
select log, 40 as rule, node, greatest(offset, 0) as offset, epoch, concat('leader ', leader)
  as actual
from (
  select *, first(leader) over (partition by log, epoch order by offset, node) as first_leader,
    row_number() over (partition by log, epoch, leader order by offset, node) as nth
  from leader_changes)
where leader <> first_leader and nth = 1""",
    42: """
select log, 42 as rule, node, offset, epoch, to_json(struct(before, voters)) as actual
from (
  select *, lag(voters) over (partition by log, node order by offset) as before
  from controls where kind in ('Voters', 'LeaderChange') and size(voters) > 0)
where size(array_except(voters, before)) + size(array_except(before, voters)) > 1""",
    46: """
select log, 46 as rule, node, base_offset as offset, epoch,
  concat('not the bytes of node ', first.node) as actual
from pairs where epoch = first.epoch and not is_same""",
    47: """
select log, 47 as rule, node, base_offset as offset, epoch,
  concat('not the batch of node ', first.node) as actual
from pairs
where base_offset < least(high_watermark, first.high_watermark)
  and (epoch <> first.epoch or not is_same)
union all
select o.log, 47, l.node, o.base_offset, o.epoch, 'none at this offset'
from (
  select b.log, b.base_offset, min_by(b.epoch, b.node) as epoch,
    max(least(l.high_watermark, l.end_offset)) as top, collect_set(b.node) as nodes
  from good_batches b join log_ends l on l.log = b.log and l.node = b.node
  group by b.log, b.base_offset) o
join log_ends l on l.log = o.log
where not array_contains(o.nodes, l.node)
  and o.base_offset < least(o.top, l.high_watermark, l.end_offset)
  and o.base_offset >= (select min(f.base_offset) from good_batches f
    where f.log = l.log and f.node = l.node)""",
    49: """
with committed as (select log, max(high_watermark) as top from log_ends group by log),
ends as (
  select b.log, b.node, b.epoch, max(b.end_offset) as end_offset
  from good_batches b group by b.log, b.node, b.epoch),
held as (
  select e.* from ends e join committed c on c.log = e.log and e.end_offset <= c.top)
select c.log, 49 as rule, c.leader as node, l.end_offset as offset, c.epoch,
  concat('it ends before ', max(h.end_offset)) as actual
from (select distinct log, epoch, leader from leader_changes) c
join log_ends l on l.log = c.log and l.node = c.leader
join held h on h.log = c.log and h.epoch < c.epoch
group by c.log, c.leader, c.epoch, l.end_offset
having l.end_offset < max(h.end_offset)""",
    51: """
select l.log, 51 as rule, l.node, l.start_offset as offset, -1 as epoch, 'no snapshot' as actual
from log_ends l left anti join snapshot_files f on f.log = l.log and f.node = l.node
  and f.end_offset between l.start_offset and l.end_offset
where l.start_offset > 0
union all
select l.log, 51, l.node, f.end_offset, f.epoch, concat('the log ends at ', l.end_offset)
from log_ends l join snapshot_files f on f.log = l.log and f.node = l.node
  and f.end_offset > l.end_offset""",
}
