"""`graph` and what `apply` refuses, from definitions alone."""

from __future__ import annotations

import pytest

from fencepost.app import App, AppError
from fencepost.cli.apply import compare, refuse_circle
from fencepost.cli.failures import BadInput
from fencepost.cli.graph import _show, draw
from fencepost.codec import BadRecord
from fencepost.core.graph import children_of, circle, in_order, related
from fencepost.core.links import When
from fencepost.core.schedule import Every
from fencepost.core.task import Definition, PythonHandler
from fencepost.wire.definition import definition_from_json, definition_to_json


def task(name: str, *after: str, **fields: object) -> Definition:
    return Definition(name, PythonHandler("f"), after=after, **fields)  # type: ignore[arg-type]


DIAMOND = {"end": ("a", "b"), "a": ("root",), "b": ("root",)}


def test_a_graph_lists_parents_before_children_and_says_who_is_not_defined() -> None:
    defined = {name: task(name, *after) for name, after in DIAMOND.items()} | {"alone": task("alone")}
    drawn = draw(defined)
    assert [item["task"] for item in drawn["tasks"]] == ["root", "a", "b", "end"]
    root, _, _, end = drawn["tasks"]
    assert root == {
        "task": "root", "defined": False, "after": [], "when": None, "schedule": None, "children": ["a", "b"],
        "shards": 0, "map": None, "pool": None, "broadcast": False,
    }  # fmt: skip
    assert (end["after"], end["when"], end["children"]) == (["a", "b"], "all_succeeded", [])
    assert drawn["circle"] is None


def test_a_broadcast_is_shown_as_one_and_refused_where_it_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    _show(draw({"flush": task("flush", "a", broadcast=True)}))
    assert "flush  after a  on every worker" in capsys.readouterr().out
    app = App("x")
    app.task("flush", broadcast=True, after="a", schedule=Every(60), name="f0")(lambda ctx: None)
    (declared,) = app.definitions()
    assert (declared.broadcast, declared.overlap.value) == (True, "buffer_one")
    for number, (more, why) in enumerate(
        [
            ({"broadcast": 1}, "broadcast is 1; allowed: True, False"),
            ({"broadcast": True, "shards": 2}, "shards and broadcast exclude each other"),
            ({"broadcast": True, "pool": "gpu"}, "not together with pool yet"),
            ({"broadcast": True, "overlap": "terminate"}, "allowed: skip, buffer_one, buffer_all"),
        ]
    ):
        with pytest.raises(AppError, match=why):
            app.task("s", name=f"f1{number}", **more)(lambda ctx: None)  # type: ignore[arg-type]
    with pytest.raises(AppError, match="pattern"):
        app.task("s/*", broadcast=True, name="f2")(lambda ctx: None)


def test_a_graph_of_one_task_has_what_it_runs_after_and_what_runs_after_it() -> None:
    defined = {name: task(name, *after) for name, after in DIAMOND.items()} | {"alone": task("alone")}
    assert [item["task"] for item in draw(defined, "a")["tasks"]] == ["root", "a", "end"]
    assert [item["task"] for item in draw(defined, "alone")["tasks"]] == ["alone"]
    assert draw(defined, "nobody")["tasks"] == []


@pytest.mark.parametrize(
    ("after", "way"),
    [
        ({}, None),
        (DIAMOND, None),
        ({"a": ("a",)}, ("a", "a")),
        ({"a": ("b",), "b": ("a",)}, ("a", "b", "a")),
        ({"x": ("a",), "a": ("c",), "b": ("a",), "c": ("b",)}, ("a", "b", "c", "a")),
        ({"a": ("b", "d"), "b": ("c",), "d": ("a",)}, ("a", "d", "a")),
    ],
    ids=str,
)
def test_a_circle_is_named_in_the_order_in_which_it_would_run(
    after: dict[str, tuple[str, ...]], way: tuple[str, ...] | None
) -> None:
    assert circle(after) == way
    assert set(in_order(after)) == {*after, *(parent for parents in after.values() for parent in parents)}


def test_a_long_chain_is_no_matter_of_the_stack() -> None:
    chain = {f"t{number}": (f"t{number + 1}",) for number in range(20_000)}
    assert circle(chain) is None
    assert in_order(chain)[0] == "t20000"
    assert len(related(chain, "t0")) == 20_001
    way = circle(chain | {"t20000": ("t0",)})
    assert way is not None
    assert len(way) == 20_002
    assert children_of(chain)["t1"] == ("t0",)


def test_what_is_applied_is_refused_with_the_way_round_whether_it_stands_in_files_or_in_the_topic() -> None:
    with pytest.raises(BadInput, match="b -> a -> b"):
        refuse_circle([task("a", "b")], {"b": task("b", "a")}, ())
    refuse_circle([task("a", "b")], {"b": task("b", "a")}, ("b",))
    refuse_circle([task("a", "b"), task("b")], {"b": task("b", "a"), "broken": None}, ())


def test_an_app_refuses_a_circle_and_what_cannot_be_followed() -> None:
    app = App("x")
    app.task("a", after=["b"], name="fa")(lambda ctx: None)
    with pytest.raises(AppError, match="a -> b -> a"):
        app.task("b", after="a", name="fb")(lambda ctx: None)
    with pytest.raises(AppError, match="x -> x"):
        app.task("x", after="x", name="fx")(lambda ctx: None)
    with pytest.raises(AppError, match="pattern"):
        app.task("y", after="z/*", name="fy")(lambda ctx: None)
    with pytest.raises(AppError, match="pattern"):
        app.task("y/*", after="z", name="fy2")(lambda ctx: None)
    with pytest.raises(AppError, match="when is 'never'; allowed: all_succeeded, any, all_done"):
        app.task("y", after="z", when="never", name="fy3")(lambda ctx: None)
    with pytest.raises(AppError, match="pattern"):
        app.task("s/*", shards=2, name="fs")(lambda ctx: None)
    with pytest.raises(AppError, match="shards is 251; allowed: 1 to 250"):
        app.task("s", shards=251, name="fs1")(lambda ctx: None)
    with pytest.raises(AppError, match="exclude each other"):
        app.task("s", shards=2, map="x", name="fs2")(lambda ctx: None)
    with pytest.raises(AppError, match="'x' is none of the tasks it runs after; allowed: z"):
        app.task("s", after="z", map="x", name="fs3")(lambda ctx: None)
    with pytest.raises(AppError, match="each once"):
        app.task("y", after=["z", "z"], name="fy4")(lambda ctx: None)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"after": ["t"]}, "after"),
        ({"after": "a"}, "after"),
        ({"after": ["a", "a"]}, "after"),
        ({"after": ["a\n"]}, "after"),
        ({"after": [f"t{number}" for number in range(101)]}, "after"),
        ({"after": [""]}, "after[0]"),
        ({"when": "never"}, "when"),
        ({"propagate_failure": 1}, "propagate_failure"),
        ({"shards": 0}, "shards"),
        ({"shards": 251}, "shards"),
        ({"shards": 2, "map": "a"}, "map"),
        ({"after": ["a"], "map": "b"}, "map"),
        ({"map": "a", "chunk": 0}, "chunk"),
    ],
    ids=str,
)
def test_what_is_no_dependency_is_refused_naming_the_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(BadRecord) as raised:
        definition_from_json("t", {"handler": {"kind": "python", "function": "f"}, **fields})
    assert raised.value.field == field


def test_a_definition_with_dependencies_comes_out_as_it_went_in() -> None:
    given = task("t", "a", "b", when=When.ANY, propagate_failure=False)
    body = definition_to_json(given)
    assert (body["after"], body["when"], body["propagate_failure"]) == (["a", "b"], "any", False)
    assert definition_from_json("t", body) == given
    assert "after" not in definition_to_json(task("t"))
    mapped = task("t", "a", map="a", chunk=3)
    assert definition_from_json("t", definition_to_json(mapped)) == mapped


def test_an_id_too_long_for_the_names_of_its_shards_is_refused() -> None:
    with pytest.raises(BadRecord, match="no room for the names of its shards"):
        definition_from_json("t" * 250, {"handler": {"kind": "python", "function": "f"}, "shards": 2})


def test_shards_are_neither_pruned_nor_counted_as_tasks_that_no_file_has() -> None:
    known = {"t": task("t"), "t/shard/0": task("t/shard/0", shard_of="t"), "other": task("other")}
    assert compare([task("t")], known, prune=True).deleted == ("other",)
    assert compare([task("t")], known, prune=False).others == ("other",)
