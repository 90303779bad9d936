"""Which records count, and in which step: a batch, or all batches of a metadata transaction.

`told` has the records that count, each with its step: markers are left out, and so is what an
aborted transaction said. Nothing of that is judged here, where the other engines judge each record
of a transaction before they know how it ends.
"""

from typing import Final

from kraftpy.audit.catalyst.words import ABORT, BEGIN, END, MARKERS

VIEWS: Final = {
    "marked": f"""
select *,
  coalesce(last(if(type in {MARKERS}, type, null), true) over before = {BEGIN}, false) as is_inside,
  first(if(type in ({END}, {ABORT}), type, null), true) over rest as ended_by
from records
window
  before as (partition by log order by offset rows between unbounded preceding and 1 preceding),
  rest as (partition by log order by offset rows between current row and unbounded following)""",
    "batch_steps": f"""
select log, base_offset, last_offset, epoch, leaves_open,
  count_if(not leaves_open) over (
    partition by log order by base_offset rows between unbounded preceding and 1 preceding) as step
from (
  select *, coalesce(last(marker, true) over (partition by log order by base_offset), 0) = {BEGIN}
    as leaves_open
  from (
    select log, base_offset, max(last_offset) as last_offset, max(epoch) as epoch,
      max_by(if(type in {MARKERS}, type, null), if(type in {MARKERS}, offset, null)) as marker
    from records group by log, base_offset))""",
    "steps": """
select log, step, min(base_offset) as base_offset, max(last_offset) as last_offset,
  max(base_offset) as last_base, max_by(epoch, base_offset) as epoch,
  not max_by(leaves_open, base_offset) as is_over
from batch_steps group by log, step""",
    "told": f"""
select m.*, b.step, s.base_offset as step_base, s.last_offset as step_end
from marked m join batch_steps b using (log, base_offset) join steps s using (log, step)
where m.type not in {MARKERS} and not (m.is_inside and coalesce(m.ended_by, 0) = {ABORT})""",
    # Those that end within a metadata transaction.
    "open_snapshots": f"""
select s.snapshot, s.log, s.node, s.end_offset, s.epoch
from (select log as snapshot, of_log as log, node, end_offset, epoch from snapshot_logs) s
join marked m on m.log = s.log and m.offset < s.end_offset and m.type in {MARKERS}
group by s.snapshot, s.log, s.node, s.end_offset, s.epoch
having max_by(m.type, m.offset) = {BEGIN}""",
}

RULES: Final = {
    45: f"""
select log, 45 as rule, cast(null as int) as node, offset, epoch,
  if(is_inside, 'one begun before', 'none') as actual
from marked
where type = {BEGIN} and is_inside or type in ({END}, {ABORT}) and not is_inside
union all
select log, 45, node, end_offset, epoch, 'a transaction is open where it ends'
from open_snapshots""",
}
