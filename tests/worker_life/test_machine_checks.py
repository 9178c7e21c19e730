"""What is said about the machine's clock and its time zones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.worker.machine_checks import clock_source, clock_warning, tzdata_version


def machine(root: Path, source: str | None, flags: str | None) -> Path:
    if source is not None:
        place = root / "sys/devices/system/clocksource/clocksource0"
        place.mkdir(parents=True)
        (place / "current_clocksource").write_text(source + "\n")
    if flags is not None:
        (root / "proc").mkdir()
        (root / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: hypervisor-like\nflags\t\t: {flags}\n")
    return root


def test_a_machine_of_its_own_gets_no_warning(tmp_path: Path) -> None:
    root = machine(tmp_path, "tsc", "fpu vme sse2")
    assert clock_source(root) == "tsc"
    assert clock_warning(root) is None


def test_a_clock_given_by_the_hypervisor_is_named(tmp_path: Path) -> None:
    assert "kvm-clock" in (clock_warning(machine(tmp_path, "kvm-clock", "fpu")) or "")


def test_any_clock_under_a_hypervisor_is_named(tmp_path: Path) -> None:
    warning = clock_warning(machine(tmp_path, "tsc", "fpu hypervisor sse2")) or ""
    assert "virtual machine (clock source tsc)" in warning


@pytest.mark.parametrize("flags", ["fpu", None])
def test_a_clock_source_that_is_not_known_is_said(tmp_path: Path, flags: str | None) -> None:
    root = machine(tmp_path, None, flags)
    assert clock_source(root) == "unknown"
    assert "not known" in (clock_warning(root) or "")


def test_the_release_of_the_time_zone_data_is_found_here() -> None:
    assert re.fullmatch(r"20\d\d[a-z]|20\d\d\.\d+", tzdata_version())
