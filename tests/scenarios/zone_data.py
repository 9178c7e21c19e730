"""Time zone data as a worker finds them in the folders of PYTHONTZPATH: two releases that disagree are easily made."""

from __future__ import annotations

from pathlib import Path


def release(folder: Path, name: str, offsets_h: dict[str, int]) -> Path:
    """A folder of zones, each with one offset in hours, that says it is this release."""
    for zone, offset_h in {"Etc/UTC": 0, "UTC": 0, **offsets_h}.items():
        path = folder / zone
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zone_file(offset_h))
    (folder / "tzdata.zi").write_text(f"# version {name}\n")
    return folder


def zone_file(offset_h: int) -> bytes:
    """A TZif file (RFC 9636) of version 2 with one type of local time and no transitions."""
    sign = "-" if offset_h > 0 else ""  # POSIX counts westwards
    counts = b"".join(number.to_bytes(4, "big") for number in (0, 0, 0, 0, 1, 4))
    block = b"TZif2" + bytes(15) + counts + (offset_h * 3600).to_bytes(4, "big", signed=True) + bytes(2) + b"LMT\0"
    return block + block + f"\n<{offset_h:+03d}>{sign}{abs(offset_h)}\n".encode()
