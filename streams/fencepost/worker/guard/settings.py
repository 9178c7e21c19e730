"""What the guard and its runners are told at the start."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_KEEP_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


@dataclass(frozen=True, slots=True)
class CallSettings:
    """HTTP handlers: which hosts may be called, as `hosts.AllowedHosts` reads them, and files in PEM for TLS.

    ca_file: the authorities to be trusted instead of the system's. key_file: None if the key is in `cert_file`.
    """

    hosts: tuple[str, ...] = ()
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """`beat_ttl_s` is how long the worker's loop may be silent; `margin_s` is taken off every lease.

    commands: what `argv[0]` of a command may be, as written there: absolute paths, or names found on PATH at start.
    keep_env: variables of the worker that commands get; everything else is theirs to be told.
    strict_stop: whether every runner holds a kernel timer of its own. None: where it is needed, because containers on
    this machine are frozen by cgroup v1.
    containment: "auto" takes the strongest that is permitted; "process-groups" does without a PID namespace.
    """

    app: str | None = None  # "module:attribute"
    namespace: str = "fencepost"
    slots: int = 100
    shared_processes: int = 2  # kept ready; more are forked while functions take long, at most `slots`
    margin_s: float = 5.0
    beat_ttl_s: float = 30.0
    commands: tuple[str, ...] = ()
    keep_env: tuple[str, ...] = DEFAULT_KEEP_ENV
    calls: CallSettings = CallSettings()
    grace_s: float = 5.0  # at close, where none is given
    uid: int | None = None
    gid: int | None = None
    strict_stop: bool | None = None
    containment: str = "auto"
    start_timeout_s: float = 120.0  # for importing the app

    def __post_init__(self) -> None:
        positive = {"slots": self.slots, "shared_processes": self.shared_processes, "beat_ttl_s": self.beat_ttl_s}
        for name, value in positive.items():
            if value <= 0:
                raise ValueError(f"{name}: {value} is not above 0")
        if self.margin_s < 0:
            raise ValueError(f"margin_s: {self.margin_s} is below 0")
        if self.containment not in ("auto", "process-groups"):
            raise ValueError(f"containment: {self.containment!r} is not one of auto, process-groups")
        for command in self.commands:
            if "/" in command and not command.startswith("/"):
                raise ValueError(f"commands: {command!r} is neither an absolute path nor a bare name")
