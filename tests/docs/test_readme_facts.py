"""What README states as facts is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.core.diagram import diagram
from fencepost.kafka.topics import Topics, TopicSpec
from fencepost.settings import PROFILES, Settings
from fencepost.wire.edge import PAYLOAD_BYTES
from fencepost.worker.printer import RUN_LIMIT_BYTES

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
DAY_MS = 86_400_000
LONGEST_LINES = 240


def rows_of(text: str, first_heading: str) -> list[list[str]]:
    """The cells of the table whose first heading is this, without heading and rule."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def test_the_diagram_is_the_one_of_the_table() -> None:
    between = re.search(r"<!-- diagram: begin -->\n(.*?)<!-- diagram: end -->", README, re.DOTALL)
    assert between is not None
    assert between[1] == f"```mermaid\n{diagram()}\n```\n"


def cleanup_of(spec: TopicSpec) -> str:
    if spec.compacted:
        return "compact"
    return f"delete, {int(spec.config['retention.ms']) // DAY_MS} days"


def test_the_table_of_topics_is_what_init_makes() -> None:
    told = {cells[0].strip("`"): cells[2] for cells in rows_of(README, "topic")}
    assert told == {spec.name: cleanup_of(spec) for spec in Topics("fencepost").specs()}


def test_only_the_workers_topic_has_another_number_of_partitions() -> None:
    assert [spec.name for spec in Topics("fencepost").specs() if not spec.per_task] == ["fencepost.workers"]
    assert "every topic but `workers` has the same number of partitions" in README


def test_the_table_of_profiles_is_what_the_settings_are() -> None:
    told = {cells[0].strip("`"): cells[2:] for cells in rows_of(README, "profile")}
    names = ("session_timeout_s", "lease_ttl_s", "renewal_s", "margin_s")
    assert told == {
        profile: [f"{numbers[name]:g} s" for name in names] for profile, numbers in PROFILES.items()
    }  # fmt: skip


def test_limits_are_those_of_the_code() -> None:
    assert PAYLOAD_BYTES == 256 * 1024
    assert RUN_LIMIT_BYTES == 1024 * 1024
    assert "Payload 256 KiB, checkpoint and result 64 KiB, what a run prints 1 MiB, task ID 255 bytes" in README
    assert Settings().rate_error == 0.001


def test_it_is_short_enough_to_be_read() -> None:
    assert README.count("\n") <= LONGEST_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|md|toml|json))`", text):
        places = [ROOT / name, ROOT / "streams" / "fencepost" / name, page.parent / name]
        assert any(place.exists() for place in places), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_heading_that_a_page_links_to_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", text):
        other = (page.parent / name if name else page).read_text(encoding="utf-8")
        anchors = {
            re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", other, re.MULTILINE)
        }
        assert anchor in anchors, f"{page.name} links to {name}#{anchor}"
