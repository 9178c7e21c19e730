"""Step 4 of an acquisition: what to do with everything that was restored."""

from __future__ import annotations

from collections import deque

from fencepost.core.evolve import changer
from fencepost.core.ids import partition_of
from fencepost.core.lease import wait_s
from fencepost.core.task import Cause, Definition, Outcome, Task, TaskState
from fencepost.worker.context import LaneContext
from fencepost.worker.orders import RunEnded
from fencepost.worker.partition import Partition
from fencepost.worker.restore import Restored

_with_state = changer(Task, "state")
_at_offsets = changer(TaskState, "trigger_offset", "control_offset")


class Takeover:
    """Puts restored tasks into a partition that is held now."""

    def __init__(self, context: LaneContext) -> None:
        self._context = context

    def take_over(self, partition: Partition, restored: Restored) -> None:
        """Step 4: everything but what was found RUNNING may start; that is adopted, ended or waited out."""
        context = self._context
        now_ms = context.clock.now_ms()
        partition.definitions = self._placed(restored)
        partition.floor = restored.floor
        partition.unreadable = set(restored.unreadable)
        partition.misplaced = restored.misplaced
        for name, why in (*restored.unreadable.items(), *restored.bad_definitions.items()):
            context.log.error("a record this worker cannot read is left alone", task=name, why=why)
        self._forget_other_logs(partition, restored)
        partition.tasks.update(restored.tasks)
        for task_id, task in restored.tasks.items():
            if task.group is not None:  # the others wait for their definitions
                partition.put(task_id, task, now_ms)
        partition.found_running = {task.state.task for task in partition.running()}
        self._find_changed_definitions(partition)
        counted_from_s = context.watch.waits_from(partition.holding.stamp, partition.holding.answered_boot_s)
        for task in list(partition.running()):
            self._found_running(partition, task, counted_from_s)

    def _placed(self, restored: Restored) -> dict[str, Definition]:
        """Without those that do not belong here: a pool's come with what the task brings along, others without."""
        own = self._context.topics.pool
        kept = {}
        for task_id, definition in restored.definitions.items():
            if (definition.arrival is not None) == (own is not None):
                kept[task_id] = definition
            else:
                why = "pool: the definition is for another namespace"
                self._context.log.error("a record this worker cannot read is left alone", task=task_id, why=why)
        return kept

    def _forget_other_logs(self, partition: Partition, restored: Restored) -> None:
        """A state cannot have taken what its log does not reach: such an offset is of a log that was there before.

        The loss of that one was accepted (`init --accept-new-topics`). Kept, the offset would have new records taken
        for old ones and left out without a word, until the new log had grown past it.
        """
        ends = (partition.trigger_end, partition.control_end)
        forgotten = 0
        for task_id, task in restored.tasks.items():
            state = task.state
            if state.trigger_offset >= ends[0] or state.control_offset >= ends[1]:
                trigger_offset = state.trigger_offset if state.trigger_offset < ends[0] else -1
                control_offset = state.control_offset if state.control_offset < ends[1] else -1
                restored.tasks[task_id] = _with_state(task, _at_offsets(state, trigger_offset, control_offset))
                forgotten += 1
        if forgotten:
            self._context.log.warning(
                "offsets beyond the end of the log are forgotten: its topic was made again",
                partition=partition.number,
                tasks=forgotten,
            )

    def _found_running(self, partition: Partition, task: Task, counted_from_s: float) -> None:
        context, run, task_id = self._context, task.state.run, task.state.task
        assert run is not None
        if (task_id, run.epoch) in partition.found:
            return  # its report waits to be applied
        if run.lane != context.lane:
            partition.waits[task_id] = counted_from_s + wait_s(run.lease_ttl_s, context.settings.rate_error)
            context.node_fence.ask(run.lane)
        elif context.runners.holds(task_id, run.epoch):
            context.runners.rebind(partition.number, run.nonce, partition.nonce)
            partition.live[task_id] = run.epoch
            partition.adopted.append((task_id, run.epoch))
        else:
            # This very process recorded it, and its guard says that nothing of it lives.
            partition.found[task_id, run.epoch] = RunEnded(task_id, run.epoch, Outcome.INTERRUPTED, Cause.FENCED)

    def _find_changed_definitions(self, partition: Partition) -> None:
        context = self._context
        definitions: dict[str, Definition] = dict(partition.definitions)
        for task_id, declared in context.declared.exact.items():
            if partition_of(task_id.encode(), context.partition_count) == partition.number:
                definitions.setdefault(task_id, declared)
        for task_id in partition.found_running:
            partition.undefined.append((task_id, definitions.get(task_id) or context.declared.find(task_id)))
        for task_id, definition in definitions.items():
            if task_id in partition.found_running:
                continue
            wanted_back = definition.arrival is not None and definition.arrival.recall
            if task_id in partition.tasks or definition.schedule is not None or definition.after or wanted_back:
                partition.undefined.append((task_id, definition))
        for task_id in partition.tasks:
            if task_id not in definitions and task_id not in partition.found_running:
                partition.undefined.append((task_id, context.declared.find(task_id)))
        self._first_come_first(partition)

    def _first_come_first(self, partition: Partition) -> None:
        """What waits gets in line again in the order of its triggers, in which it stood before."""
        tasks = partition.tasks
        waiting: list[tuple[int, tuple[str, Definition | None]]] = []
        others: list[tuple[str, Definition | None]] = []
        found_first = len(partition.found_running)
        for place, entry in enumerate(partition.undefined):
            known = tasks.get(entry[0])
            if place >= found_first and known is not None and known.waiting:
                waiting.append((known.waiting[0].offset, entry))
            else:
                others.append(entry)
        waiting.sort(key=lambda each: each[0])
        partition.undefined = deque([*others[:found_first], *[entry for _, entry in waiting], *others[found_first:]])
