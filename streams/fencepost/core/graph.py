"""The graph of tasks that run after others: what it looks like, and whether it goes in a circle."""

from __future__ import annotations

from collections.abc import Collection, Mapping

After = Mapping[str, Collection[str]]  # task -> the tasks it runs after


def circle(after: After) -> tuple[str, ...] | None:
    """A way round, in the order in which things would run, its first task again at its end; None: there is none."""
    checked: set[str] = set()
    for first in after:
        if first in checked:
            continue
        way: list[str] = [first]  # each runs after the next
        on_way = {first}
        left = [iter(after.get(first, ()))]
        while left:
            parent = next(left[-1], None)
            if parent is None:
                left.pop()
                done = way.pop()
                on_way.discard(done)
                checked.add(done)
            elif parent in on_way:
                return tuple(reversed([*way[way.index(parent) :], parent]))
            elif parent not in checked:
                way.append(parent)
                on_way.add(parent)
                left.append(iter(after.get(parent, ())))
    return None


def children_of(after: After) -> dict[str, tuple[str, ...]]:
    """Task -> the tasks that run after it, also for tasks that are only named."""
    found: dict[str, list[str]] = {}
    for task, parents in after.items():
        for parent in parents:
            found.setdefault(parent, []).append(task)
    return {parent: tuple(sorted(children)) for parent, children in found.items()}


def related(after: After, task: str) -> set[str]:
    """The task, all it runs after, near and far, and all that run after it."""
    return _reach(after, task) | _reach(children_of(after), task)


def in_order(after: After) -> list[str]:
    """Every task of the graph, each behind those it runs after (as far as it does not go in a circle), else by name."""
    tasks = sorted({*after, *(parent for parents in after.values() for parent in parents)})
    placed: dict[str, None] = {}
    for first in tasks:
        left = [(first, iter(sorted(after.get(first, ()))))]
        on_way = {first}
        while left:
            task, parents = left[-1]
            parent = next((one for one in parents if one not in placed and one not in on_way), None)
            if parent is None:
                left.pop()
                placed.setdefault(task)
            else:
                on_way.add(parent)
                left.append((parent, iter(sorted(after.get(parent, ())))))
    return list(placed)


def _reach(edges: Mapping[str, Collection[str]], task: str) -> set[str]:
    found, left = {task}, [task]
    while left:
        for other in edges.get(left.pop(), ()):
            if other not in found:
                found.add(other)
                left.append(other)
    return found
