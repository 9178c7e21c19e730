"""`dlq`: what could not be handled, and sending it again."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.app import load_app
from fencepost.cli.failures import BadInput, Failure
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, load_settings
from fencepost.cli.output import age, emit, local_time, note, printable, say, table
from fencepost.cli.replay import replay_of, rule_of, triggers_of
from fencepost.codec import BadRecord
from fencepost.core.task import Attempt
from fencepost.core.times import format_ms
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.views.rulefile import read_rule_files
from fencepost.wire.dead_letter import DeadLetter, attempt_fields, decode_dead_letter

group = typer.Typer(help="Dead letters: list, show, replay.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `dlq list` shows it.")]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter and where it lies in its topic."""

    partition: int
    offset: int
    at_ms: int  # when it was appended
    letter: DeadLetter

    @property
    def place(self) -> str:
        return f"{self.partition}:{self.offset}"


@group.command("list")
def list_letters(
    task: Annotated[str | None, typer.Option("--task", help="Only those with this key or task.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """List dead letters, oldest first."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    load_namespace(settings)
    found = [item for item in _letters(settings) if task is None or task in (_text(item.letter.key), item.letter.task)]
    found.sort(key=lambda item: item.at_ms)
    if as_json:
        emit({"dead_letters": [_document(item) for item in found]})
        return
    table(("PLACE", "WHEN", "KEY", "FROM", "REPLAYS", "REASON"), (_row(item) for item in found), "no dead letters")


@group.command("show")
def show(
    place: Place,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter with the record as it was received."""
    item = _find(load_settings(config, bootstrap, namespace, pool=pool), place)
    if as_json:
        emit(_document(item))
        return
    letter = item.letter
    rows = [
        ("place", item.place),
        ("reason", f"{letter.field}: {letter.reason}" if letter.field else letter.reason),
        ("when", local_time(item.at_ms)),
        ("from", f"{letter.topic}/{letter.partition}/{letter.offset}"),
        ("key", _shown(letter.key)),
        ("task", letter.task),
        ("epoch", letter.epoch),
        ("replays", letter.replays),
        *((f"header {name}", _shown(value)) for name, value in letter.headers),
        *(("attempt", _attempt(attempt)) for attempt in letter.attempts),
        *([] if letter.error is None else [("error", printable(letter.error))]),
    ]
    table(("", ""), rows, "")
    say(_shown(letter.value))


@group.command("replay")
def replay(
    places: Annotated[list[str], typer.Argument(metavar="PARTITION:OFFSET", help="As `dlq list` shows them.")],
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="For letters of rules: files with them as they are now."),
    ] = None,
    app: Annotated[str | None, typer.Option("--app", help="The same: module:attribute of an App with rules.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Send dead letters again to where they came from. They stay in the topic; the count of replays goes with them.

    Those of rules are not sent there: with --rules or --app the rule is applied again, and what it triggers is sent.
    """
    settings = load_settings(config, bootstrap, namespace, pool=pool, **({} if app is None else {"app": app}))
    known = read_rule_files(rules or [])
    if app is not None:
        known += load_app(app).rules()
    partitions = load_namespace(settings).partitions
    topics = Topics(settings.namespace)
    items = [_find(settings, place) for place in places]
    records: list[tuple[Letter, Outgoing]] = []
    for item in items:
        try:
            name = rule_of(item.letter, topics) if known else None
            if name is None:
                records.append((item, replay_of(item.letter, item.place, topics, partitions)))
                continue
            triggers = triggers_of(item.letter, name, known, topics, partitions)
        except ValueError as error:
            raise Failure(f"{item.place} cannot be replayed: {error}") from error
        if not triggers:
            note(f"{item.place}: rule {name} triggers nothing of it")
        records += [(item, out) for out in triggers]
    with Producer(settings) as producer:
        sent = producer.send_all([out for _, out in records])
    if as_json:
        emit(
            {
                "replayed": [
                    {"place": item.place, "topic": at.topic, "partition": at.partition, "offset": at.offset}
                    for (item, _), at in zip(records, sent, strict=True)
                ]
            }
        )
        return
    for (item, _), at in zip(records, sent, strict=True):
        say(f"{item.place} went to {at.topic}/{at.partition}/{at.offset}, replay {item.letter.replays + 1}")


def _letters(settings: Settings, partitions: list[int] | None = None, from_: int = 0) -> Iterator[Letter]:
    topic = Topics(settings.namespace).dead_letter
    for record in scan(settings, topic, partitions, from_):
        try:
            yield Letter(record.partition, record.offset, record.at_ms, decode_dead_letter(record.value or b""))
        except BadRecord as error:
            note(f"warning: {topic}/{record.partition}/{record.offset} is no dead letter of ours: {error}")


def _find(settings: Settings, place: str) -> Letter:
    partition, _, offset = place.partition(":")
    if not (partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()):
        raise BadInput(f"{place!r} is no place; allowed: PARTITION:OFFSET, as `fencepost dlq list` shows it")
    count = load_namespace(settings).partitions
    if int(partition) >= count:
        raise BadInput(f"{place!r}: partition {partition}; allowed: 0 to {count - 1}")
    for item in _letters(settings, [int(partition)], int(offset)):
        if item.offset == int(offset):
            return item
        break
    raise Failure(f"there is no dead letter at {place}, or it is no longer kept")


def _document(item: Letter) -> dict[str, Any]:
    letter = item.letter
    return {
        "place": item.place,
        "at": format_ms(item.at_ms),
        "reason": letter.reason,
        "field": letter.field,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "key": _bytes(letter.key),
        "value": _bytes(letter.value),
        "headers": [[name, _bytes(value)] for name, value in letter.headers],
        "task": letter.task,
        "epoch": letter.epoch,
        "replays": letter.replays,
        "attempts": [attempt_fields(attempt) for attempt in letter.attempts],
        "error": letter.error,
    }


def _attempt(attempt: Attempt) -> str:
    cause = "" if attempt.cause is None else f": {attempt.cause}"
    return f"epoch {attempt.epoch} {attempt.outcome.value}{cause}, {local_time(attempt.ended_ms)}"


def _bytes(raw: bytes | None) -> dict[str, str] | None:
    if raw is None:
        return None
    text = _text(raw)
    return {"base64": b64encode(raw).decode()} if text is None else {"text": text}


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _shown(raw: bytes | None) -> str:
    if raw is None:
        return "(none)"
    text = _text(raw)
    return f"base64 {b64encode(raw).decode()}" if text is None else printable(text)


def _row(item: Letter) -> tuple[object, ...]:
    letter = item.letter
    reason = f"{letter.field}: {letter.reason}" if letter.field else letter.reason
    origin = f"{letter.topic}/{letter.partition}/{letter.offset}"
    return (item.place, age(item.at_ms), _shown(letter.key)[:60], origin, letter.replays, reason[:160])
