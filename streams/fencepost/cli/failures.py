"""How errors become exit codes: 2 for what was typed or configured wrongly, 1 for what failed, 3 for "cannot say"."""

from __future__ import annotations

from fencepost.app import AppError
from fencepost.broker import BrokerError
from fencepost.codec import BadRecord, NotEncodable
from fencepost.core.schedule import ScheduleError
from fencepost.kafka.admin import BadRequest
from fencepost.kafka.errors import DeliveryUnknown, KafkaProblem
from fencepost.repeat import NotKept
from fencepost.settings import SettingsError
from fencepost.views.rulefile import BadRule

OK = 0
FAILURE = 1
USAGE = 2
UNKNOWN = 3  # a record may or may not have been written
INTERRUPTED = 130


class Failure(Exception):
    """The command did what it could and failed; the message says why."""


class BadInput(Exception):
    """An argument has a bad value; the message names it and what is allowed."""


_USAGE = (BadInput, SettingsError, BadRequest, BadRecord, NotEncodable, ScheduleError, AppError, BadRule)
_FAILURE = (Failure, NotKept, KafkaProblem, BrokerError, OSError)


def exit_code(error: Exception) -> int | None:
    """The code for an error of ours; None for one that is a bug."""
    if isinstance(error, _USAGE):
        return USAGE
    if isinstance(error, DeliveryUnknown):
        return UNKNOWN
    return FAILURE if isinstance(error, _FAILURE) else None
