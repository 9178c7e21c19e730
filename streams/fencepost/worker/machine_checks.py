"""What the machine may do to the promise, and what goes into a worker's record about it."""

from __future__ import annotations

import zoneinfo
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
# Clocks that the hypervisor gives: it stops or sets them with the machine.
_GIVEN_CLOCKS = {"kvm-clock", "hyperv_clocksource_tsc_page", "hyperv_clocksource_msr", "xen", "vmi-timer"}


def clock_source(root: Path = Path("/")) -> str:
    """The kernel's clock source, such as `tsc`; `unknown` where it does not say."""
    try:
        return (root / _CLOCK_SOURCE).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return "unknown"


def clock_warning(root: Path = Path("/")) -> str | None:
    """Why a pause of the whole machine might not count on its clock, in one sentence; None if nothing speaks for it.

    Leases are measured by CLOCK_BOOTTIME. Where a hypervisor may stop the machine and its clock with it, a run goes on
    afterwards as if no time had passed, while another worker has waited its lease out.
    """
    source = clock_source(root)
    tail = (
        "if the machine is paused or moved, its clock may stop with it and leases would not notice: "
        "where that matters, let resources check the epoch as a token"
    )
    if source in _GIVEN_CLOCKS:
        return f"the clock source is {source}; {tail}"
    if _is_virtual(root):
        return f"this is a virtual machine (clock source {source}); {tail}"
    if source == "unknown":
        return f"the clock source is not known; {tail}"
    return None


def _is_virtual(root: Path) -> bool:
    """The hypervisor flag of the processor (x86), or what the kernel says it runs under."""
    try:
        for line in (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("flags"):
                return "hypervisor" in line.split()
    except OSError:
        return False
    return (root / "sys/hypervisor/type").exists()


def holidays_version() -> str:
    """Which release of the public holidays it uses."""
    try:
        return version("holidays")
    except PackageNotFoundError:
        return "unknown"


def tzdata_version() -> str:
    """Which release of the time zone data this process uses: two workers with different ones may disagree on slots."""
    for folder in map(Path, zoneinfo.TZPATH):
        if not (folder / "Etc" / "UTC").exists():
            continue
        try:
            with (folder / "tzdata.zi").open(encoding="utf-8") as lines:
                first = lines.readline().split()
        except OSError:
            return "unknown"
        return first[-1] if len(first) == 3 and first[1] == "version" else "unknown"
    try:
        return version("tzdata")  # what zoneinfo falls back to
    except PackageNotFoundError:
        return "unknown"
