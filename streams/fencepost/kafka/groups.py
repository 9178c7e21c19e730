"""Which group protocol a namespace uses, and with which session timeout.

The session timeout decides how soon a dead worker's tasks move. Under the newer protocol (KIP-848) it is a setting of
the group at the broker, whose stock minimum is 45 s; under the classic one the member asks for it, stock minimum 6 s.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.kafka.cluster import Admin, Refused
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """`notes` say why, and what could not be had."""

    protocol: str
    session_timeout_s: float
    notes: tuple[str, ...] = ()


def choose_group(admin: Admin, settings: Settings, broker_config: dict[str, str]) -> GroupChoice:
    """`auto`: the newer protocol where the group may have the wanted session timeout, else the classic one."""
    if settings.group_protocol == "classic":
        return _classic(settings, broker_config, ())
    refusal = _set_session(admin, settings)
    if refusal is None:
        return GroupChoice("consumer", settings.session_timeout_s)
    if settings.group_protocol == "consumer":
        floor_s = _floor_s(broker_config, "group.consumer.min.session.timeout.ms", 45_000)
        return GroupChoice(
            "consumer",
            max(settings.session_timeout_s, floor_s),
            (f"the group's session timeout stays at the broker's own: {refusal}",),
        )
    return _classic(settings, broker_config, (f"classic group protocol, because {refusal}",))


def _set_session(admin: Admin, settings: Settings) -> str | None:
    """Why the broker does not let the group have the timeout; None if it does."""
    wanted = {
        "consumer.session.timeout.ms": str(round(settings.session_timeout_s * 1000)),
        "consumer.heartbeat.interval.ms": str(round(settings.heartbeat_s * 1000)),
    }
    try:
        admin.set_group_config(settings.group, wanted)
    except Refused as error:
        return f"the broker refused {', '.join(f'{name}={value}' for name, value in wanted.items())} ({error})"
    return None


def _classic(settings: Settings, broker_config: dict[str, str], notes: tuple[str, ...]) -> GroupChoice:
    floor_s = _floor_s(broker_config, "group.min.session.timeout.ms", 6_000)
    if settings.session_timeout_s < floor_s:
        note = (
            f"session timeout {floor_s:g} s instead of {settings.session_timeout_s:g} s: the broker's "
            f"group.min.session.timeout.ms is {floor_s * 1000:g}"
        )
        notes = (*notes, note)
    return GroupChoice("classic", max(settings.session_timeout_s, floor_s), notes)


def _floor_s(broker_config: dict[str, str], name: str, stock_ms: int) -> float:
    return int(broker_config.get(name, stock_ms)) / 1000
