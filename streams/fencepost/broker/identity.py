"""What a cluster's folder says about itself: `cluster.json`, written first and completed after formatting."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..codec import dumps, loads
from .errors import BrokerError
from .settings import Ports

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """One cluster: its Kafka ID, its nodes' addresses, its ports, and whether its data folders were fully formatted."""

    cluster_id: str
    addresses: tuple[str, ...]
    ports: Ports
    kafka_version: str
    formatted: bool


def read_identity(folder: Path) -> Identity | None:
    """None if the folder is empty or not there. Raises BrokerError if it holds something else than a cluster.

    Empty data folders of nodes are nothing yet: they may have been made, or mounted, for the first start.
    """
    file = folder / _FILE
    if not file.exists():
        if folder.is_dir() and not all(_is_bare(entry) for entry in folder.iterdir()):
            raise BrokerError(f"{folder} is not empty and holds no cluster of Fencepost: choose another folder")
        return None
    try:
        fields = loads(file.read_bytes())
        ports = Ports(**fields.pop("ports"))
        return Identity(addresses=tuple(fields.pop("addresses")), ports=ports, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokerError(
            f"{file} is damaged ({error}): delete the folder {folder}, and its data, to begin anew"
        ) from error


def _is_bare(entry: Path) -> bool:
    if entry.name == "lock":
        return True
    data = entry / "data"
    return entry.name.startswith("node-") and [*entry.iterdir()] == [data] and not any(data.iterdir())


def write_identity(folder: Path, identity: Identity) -> None:
    draft = folder / f"{_FILE}.new"
    draft.write_bytes(dumps(asdict(identity)))
    draft.replace(folder / _FILE)


def new_uuid() -> str:
    """As Kafka writes them: 16 bytes in URL-safe base64, not starting with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


def read_meta(data: Path) -> Mapping[str, str]:
    """A data folder's `meta.properties`; empty if it has none."""
    file = data / "meta.properties"
    if not file.is_file():
        return {}
    lines = file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
