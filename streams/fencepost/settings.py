"""Settings: defaults, then files, then ``FENCEPOST_*`` variables, then arguments; later layers win, key by key.

Nothing is read at import. A wrong key or value raises :class:`SettingsError`, which names the key, where it was found
and what is allowed. Values of ``[kafka.client]`` may be secrets: they never appear in a representation or an error.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fencepost import resources
from fencepost.kafka.topics import Topics

ENV_PREFIX = "FENCEPOST_"
ENV_CLIENT_PREFIX = "FENCEPOST_KAFKA_CLIENT_"
CONFIG_VARIABLE = "FENCEPOST_CONFIG"

PROFILES: Mapping[str, Mapping[str, float]] = {
    # A broker of three that dies or freezes stalls all acks=all writes: 17 s at most with stock settings, 8 s with
    # tuned ones. A lease shorter than that would end every run of the cluster at every broker failure.
    "standard": {
        "session_timeout_s": 30.0,
        "lease_ttl_s": 30.0,
        "renewal_s": 5.0,
        "margin_s": 5.0,
        "transaction_timeout_s": 15.0,
    },
    "swift": {
        "session_timeout_s": 10.0,
        "lease_ttl_s": 15.0,
        "renewal_s": 3.0,
        "margin_s": 3.0,
        "transaction_timeout_s": 10.0,
    },
    "quick": {
        "session_timeout_s": 3.0,
        "lease_ttl_s": 3.0,
        "renewal_s": 0.5,
        "margin_s": 0.5,
        "transaction_timeout_s": 10.0,
    },
}

OWNED_CLIENT_PROPERTIES: Mapping[str, str] = {
    "bootstrap.servers": "set [kafka] bootstrap",
    "metadata.broker.list": "set [kafka] bootstrap",
    "client.id": "it is role-host-ordinal",
    "group.id": "it follows from the namespace",
    "group.instance.id": "set [worker] worker_id",
    "group.protocol": "set [profile] group_protocol",
    "group.remote.assignor": "`fencepost init` decides it",
    "partition.assignment.strategy": "`fencepost init` decides it",
    "session.timeout.ms": "set [profile] session_timeout_s",
    "heartbeat.interval.ms": "it follows from session_timeout_s",
    "max.poll.interval.ms": "it follows from handover_limit_s",
    "transactional.id": "it follows from the worker and its lane",
    "transaction.timeout.ms": "set [profile] transaction_timeout_s",
    "enable.auto.commit": "offsets are committed in transactions only",
    "enable.auto.offset.store": "offsets are committed in transactions only",
    "auto.offset.reset": "a gap in the log is a refusal, not a jump",
    "isolation.level": "only committed records are read",
    "enable.idempotence": "it is always on",
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "partitioner": "ownership is defined by Java's murmur2",
    "enable.partition.eof": "scans depend on it",
}

_NAMESPACE = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_WORKER_ID = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_POOL = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CALL_HOST = re.compile(r"(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:([0-9]{1,5}|\*))?")
_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


# What a fence command may be told in its arguments, in braces; each is in its environment too, as FENCEPOST_LOST_….
FENCE_PLACES = ("worker", "host", "pid", "incarnation", "lane", "namespace")


class SettingsError(ValueError):
    """A setting is unknown or has a bad value. The message names the key, where it was found and what is allowed."""


@dataclass(frozen=True, slots=True)
class _Bad(Exception):
    """What is allowed, raised by a parser that got something else."""

    allowed: str


@dataclass(frozen=True, slots=True)
class _Key:
    path: str  # as in a file: "worker.slots"
    field: str  # of Settings
    parse: Callable[[Any], Any]

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.field.upper()


def _number(low: float, high: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        allowed = f"a number from {low:g} to {high:g}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _Bad(allowed)
        try:
            number = float(value)
        except ValueError:
            raise _Bad(allowed) from None
        if not low <= number <= high:  # also refuses NaN
            raise _Bad(allowed)
        return number

    return parse


def _count(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        allowed = f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _Bad(allowed)
        try:
            number = int(value)
        except ValueError:
            raise _Bad(allowed) from None
        if not low <= number <= high:
            raise _Bad(allowed)
        return number

    return parse


def _choice(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise _Bad("one of " + ", ".join(allowed))
        return str(value)

    return parse


def _pattern(pattern: re.Pattern[str], words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _Bad(words)
        return value

    return parse


def _namespace(value: Any) -> str:
    name = _pattern(_NAMESPACE, "1 to 200 letters, digits, '.', '_' or '-'")(value)
    if name in (".", ".."):
        raise _Bad("a name other than '.' and '..'")
    return name


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Bad("a text that is not empty")
    return value.strip()


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "on", "off"):
        return value.lower() in ("true", "1", "on")
    raise _Bad("true or false")


def _commands(value: Any) -> tuple[str, ...]:
    allowed = "a list of absolute paths, or names to be found on PATH (in a variable: separated by ':')"
    return _list(value, allowed, lambda item: item.startswith("/") or (item != "" and "/" not in item))


def _variables(value: Any) -> tuple[str, ...]:
    allowed = "a list of names of variables (in a variable: separated by ':')"
    return _list(value, allowed, lambda item: re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", item) is not None)


def _call_hosts(value: Any) -> tuple[str, ...]:
    allowed = (
        "a list of hosts, such as api.example.com (ports 80 and 443), api.example.com:8443, api.example.com:*, "
        "*.example.com or [::1]:8080 (in a variable: separated by ',')"
    )
    items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return _list(items, allowed, lambda item: _CALL_HOST.fullmatch(item) is not None)


def _fence_command(value: Any) -> tuple[str, ...]:
    """A program and its arguments. In a variable: as in a shell, which is not used for anything else."""
    allowed = (
        "a list of texts, the program first (an absolute path, or a name to be found on PATH), with "
        + ", ".join("{" + name + "}" for name in FENCE_PLACES)
        + " where the lost worker is named"
    )
    try:
        items = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        raise _Bad(allowed) from None
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise _Bad(allowed)
    if items and not items[0].startswith("/") and "/" in items[0]:
        raise _Bad(allowed)
    for item in items:
        if not set(re.findall(r"\{([^{}]*)\}", item)) <= set(FENCE_PLACES):
            raise _Bad(allowed)
    return tuple(items)


def _list(value: Any, allowed: str, good: Callable[[str], bool]) -> tuple[str, ...]:
    items = [part for part in value.split(":") if part] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise _Bad(allowed)
    for item in items:
        if not isinstance(item, str) or not good(item):
            raise _Bad(allowed)
    return tuple(items)


def _flag_or_auto(value: Any) -> bool | None:
    if value == "auto":
        return None
    try:
        return _flag(value)
    except _Bad:
        raise _Bad("auto, true or false") from None


_KEYS: tuple[_Key, ...] = (
    _Key("namespace.name", "namespace", _namespace),
    _Key("namespace.pool", "pool", _pattern(_POOL, "1 to 63 small letters, digits, '_' or '-'")),
    _Key("kafka.bootstrap", "bootstrap", _text),
    _Key("profile.name", "profile", _choice(*PROFILES)),
    _Key("profile.session_timeout_s", "session_timeout_s", _number(1, 3600)),
    _Key("profile.lease_ttl_s", "lease_ttl_s", _number(1, 7 * 86400)),
    _Key("profile.renewal_s", "renewal_s", _number(0.1, 86400)),
    _Key("profile.margin_s", "margin_s", _number(0.4, 86400)),
    _Key("profile.transaction_timeout_s", "transaction_timeout_s", _number(1, 900)),
    _Key("profile.handover_limit_s", "handover_limit_s", _number(0, 86400)),
    _Key("profile.group_protocol", "group_protocol", _choice("auto", "classic", "consumer")),
    _Key("profile.rate_error", "rate_error", _number(0, 0.1)),
    _Key("worker.app", "app", _pattern(_APP, "module:attribute, for example shop:app")),
    _Key("worker.worker_id", "worker_id", _pattern(_WORKER_ID, "1 to 100 letters, digits, '.', '_' or '-'")),
    _Key("worker.slots", "slots", _count(1, 100_000)),
    _Key("worker.shared_processes", "shared_processes", _count(1, 1024)),
    _Key("worker.lanes", "lanes", _count(1, 256)),
    _Key("worker.queue_limit", "queue_limit", _count(1, 100_000_000)),
    _Key("worker.forget_after_s", "forget_after_s", _number(0, 36525 * 86400)),
    _Key("worker.stop_limit_s", "stop_limit_s", _number(0, 86400)),
    _Key("worker.commands", "commands", _commands),
    _Key("worker.keep_env", "keep_env", _variables),
    _Key("worker.uid", "uid", _count(0, 2**32 - 2)),
    _Key("worker.gid", "gid", _count(0, 2**32 - 2)),
    _Key("worker.strict_stop", "strict_stop", _flag_or_auto),
    _Key("worker.containment", "containment", _choice("auto", "process-groups")),
    _Key("worker.logs", "logs", _flag),
    _Key("worker.http_host", "http_host", _text),
    _Key("worker.http_port", "http_port", _count(0, 65535)),
    _Key("call.hosts", "call_hosts", _call_hosts),
    _Key("call.ca_file", "call_ca_file", _text),
    _Key("call.cert_file", "call_cert_file", _text),
    _Key("call.key_file", "call_key_file", _text),
    _Key("fence.command", "fence_command", _fence_command),
    _Key("fence.timeout_s", "fence_timeout_s", _number(0.1, 3600)),
    _Key("logging.level", "log_level", _choice("debug", "info", "warning", "error")),
    _Key("logging.format", "log_format", _choice("auto", "json", "text")),
)
_BY_PATH = {key.path: key for key in _KEYS}
_BY_FIELD = {key.field: key for key in _KEYS}
_BY_VARIABLE = {key.variable: key for key in _KEYS}
_SECTIONS = sorted({key.path.rpartition(".")[0] for key in _KEYS} | {"kafka.client"})


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any
    source: str  # for errors: 'config/prod.toml', 'variable FENCEPOST_SLOTS', 'argument slots'


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """All settings of a process. Durations in seconds (`*_s`). The numbers of the profile are already filled in.

    Make one with :meth:`load`; the keys are explained in ``config/default.toml``. `http_port` None: no HTTP; 0: any
    free port. `worker_id` None: a name is made up and the worker is a dynamic member of the group. `strict_stop` None:
    where this machine needs it.
    """

    namespace: str = "fencepost"
    pool: str | None = None  # already part of `namespace`
    bootstrap: str = "127.0.0.1:9092"
    client: Mapping[str, str] = field(default_factory=dict, hash=False)
    profile: str = "standard"
    session_timeout_s: float = 30.0
    lease_ttl_s: float = 30.0
    renewal_s: float = 5.0
    margin_s: float = 5.0
    transaction_timeout_s: float = 15.0
    handover_limit_s: float = 60.0
    group_protocol: str = "auto"
    rate_error: float = 0.001
    app: str | None = None
    worker_id: str | None = None
    slots: int = 32
    shared_processes: int = 2
    lanes: int = 1
    queue_limit: int = 10_000
    forget_after_s: float = 2_592_000.0  # 30 d; 0: never
    stop_limit_s: float = 30.0
    commands: tuple[str, ...] = ()
    keep_env: tuple[str, ...] = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
    uid: int | None = None
    gid: int | None = None
    strict_stop: bool | None = None
    containment: str = "auto"
    logs: bool = True
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    call_hosts: tuple[str, ...] = ()
    call_ca_file: str | None = None
    call_cert_file: str | None = None
    call_key_file: str | None = None
    fence_command: tuple[str, ...] = ()
    fence_timeout_s: float = 10.0
    log_level: str = "info"
    log_format: str = "auto"

    def __post_init__(self) -> None:
        if self.margin_s >= self.lease_ttl_s:
            raise SettingsError(
                f"profile.margin_s is {self.margin_s:g}; allowed: less than profile.lease_ttl_s ({self.lease_ttl_s:g})"
            )
        if self.renewal_s >= self.lease_ttl_s - self.margin_s:
            raise SettingsError(
                f"profile.renewal_s is {self.renewal_s:g}; allowed: less than lease_ttl_s - margin_s "
                f"({self.lease_ttl_s - self.margin_s:g}), or every lease would end before it is renewed"
            )
        for name in self.client:
            _check_client_property(name, "[kafka.client]")

    @property
    def heartbeat_s(self) -> float:
        """How often a member tells the group that it is there: a tenth of the session, 0.3 to 3 s."""
        return min(3.0, max(0.3, self.session_timeout_s / 10))

    @property
    def group(self) -> str:
        """The consumer group of the namespace's lanes."""
        return self.namespace

    def handover_limit(self, group_protocol: str) -> float:
        """Seconds that runs may go on while their partition is given away.

        Under the classic protocol time spent giving away holds up everybody's takeover, so it ends with the session.
        """
        if group_protocol == "classic":
            return min(self.handover_limit_s, self.session_timeout_s)
        return self.handover_limit_s

    def __repr__(self) -> str:
        parts = []
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "client":
                value = dict.fromkeys(value, "…")
            parts.append(f"{item.name}={value!r}")
        return f"Settings({', '.join(parts)})"

    @classmethod
    def load(
        cls,
        files: Iterable[str | Path] | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Read all layers.

        files: TOML files in order; None: what FENCEPOST_CONFIG names (separated by ':'), else ``config/*.toml`` of the
        working directory. The shipped defaults always go first. env: None for the process's own. overrides: by field
        name, as in this class; a value of None counts as not given; `client` is merged.
        Raises SettingsError.
        """
        env = os.environ if env is None else env
        values: dict[str, _Value] = {}
        client: dict[str, _Value] = {}
        for path in (resources.default_config(), *_files(files, env)):
            _read_file(Path(path), values, client)
        _read_env(env, values, client)
        _read_overrides(overrides or {}, values, client)
        return _build(values, client)


def _files(files: Iterable[str | Path] | None, env: Mapping[str, str]) -> list[Path]:
    if files is not None:
        return [Path(path) for path in files]
    if named := env.get(CONFIG_VARIABLE):
        return [Path(path) for path in named.split(":") if path]
    return sorted(Path("config").glob("*.toml"))


def _read_file(path: Path, values: dict[str, _Value], client: dict[str, _Value]) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from None
    _read_section(document, "", str(path), values, client)


def _read_section(
    table: Mapping[str, Any], prefix: str, source: str, values: dict[str, _Value], client: dict[str, _Value]
) -> None:
    for name, value in table.items():
        path = f"{prefix}{name}"
        if path == "kafka.client" and isinstance(value, Mapping):
            for item, setting in _flatten(value):
                client[item] = _Value(_client_value(item, setting, source), source)
        elif path in _BY_PATH:
            values[path] = _Value(_parse(_BY_PATH[path], value, path, source), source)
        elif isinstance(value, Mapping) and any(section == path for section in _SECTIONS):
            _read_section(value, path + ".", source, values, client)
        else:
            raise _unknown(path, source)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Client properties may be written `"sasl.username" = …` or `sasl.username = …`; TOML makes tables of those."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _unknown(path: str, source: str) -> SettingsError:
    section = path.rpartition(".")[0]
    allowed = sorted(key.path for key in _KEYS if key.path.rpartition(".")[0] == section) or [
        f"[{name}]" for name in _SECTIONS
    ]
    close = get_close_matches(path, _BY_PATH, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return SettingsError(f"unknown setting {path} in {source}{hint}; allowed: {', '.join(allowed)}")


def _read_env(env: Mapping[str, str], values: dict[str, _Value], client: dict[str, _Value]) -> None:
    for name, value in sorted(env.items()):
        source = f"variable {name}"
        if name.startswith(ENV_CLIENT_PREFIX):
            item = name.removeprefix(ENV_CLIENT_PREFIX).lower().replace("_", ".")
            client[item] = _Value(_client_value(item, value, source), source)
        elif name in _BY_VARIABLE:
            key = _BY_VARIABLE[name]
            values[key.path] = _Value(_parse(key, value, key.path, source), source)
        elif name.startswith(ENV_PREFIX) and (close := get_close_matches(name, _BY_VARIABLE, n=1, cutoff=0.92)):
            # Others set variables of this prefix too (Kubernetes does, for a service of that name), so only what
            # looks like a slip of the pen is refused.
            raise SettingsError(f"unknown setting in variable {name}; did you mean {close[0]}?")


def _read_overrides(overrides: Mapping[str, Any], values: dict[str, _Value], client: dict[str, _Value]) -> None:
    for name, value in overrides.items():
        source = f"argument {name}"
        if value is None:
            continue
        if name == "client":
            for item, setting in value.items():
                client[item] = _Value(_client_value(item, setting, source), source)
        elif name in _BY_FIELD:
            key = _BY_FIELD[name]
            values[key.path] = _Value(_parse(key, value, key.path, source), source)
        else:
            raise SettingsError(f"unknown setting {name} in the arguments; allowed: client, {', '.join(_BY_FIELD)}")


def _parse(key: _Key, value: Any, path: str, source: str) -> Any:
    try:
        return key.parse(value)
    except _Bad as bad:
        raise SettingsError(f"{path} in {source} is {value!r}; allowed: {bad.allowed}") from None


def _client_value(name: str, value: Any, source: str) -> str:
    _check_client_property(name, source)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"kafka.client.{name} in {source} has a bad value; allowed: a text, a number, true or false")


def _check_client_property(name: str, source: str) -> None:
    reason = OWNED_CLIENT_PROPERTIES.get(name)
    if reason is not None:
        raise SettingsError(f"kafka.client.{name} in {source} cannot be set: {reason}")


def _build(values: Mapping[str, _Value], client: Mapping[str, _Value]) -> Settings:
    chosen: dict[str, Any] = {}
    if "profile.name" in values:
        chosen.update(PROFILES[values["profile.name"].value])
    chosen.update({_BY_PATH[path].field: found.value for path, found in values.items()})
    if chosen.get("pool") is not None:
        chosen["namespace"] = Topics(chosen.get("namespace", "fencepost")).of(chosen["pool"]).namespace
    return Settings(client={name: found.value for name, found in client.items()}, **chosen)
