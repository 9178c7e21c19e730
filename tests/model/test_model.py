"""The small cases of the model: with all safeguards it holds, without any one of them it breaks."""

from __future__ import annotations

import re

import pytest

from tests.model.cases import HOLDS, INVARIANTS, Case, load, parse
from tests.model.safeguards import FINER, NOT_HERE, SHARED
from tests.model.spin import MODEL, check
from tests.simulation.safeguards import SAFEGUARDS

LIMIT_S = 280.0  # alone on two cores: ten seconds at most
MEMORY_MIB = 4000
CASES = load()
SMALL = [case for case in CASES if case.size == "small"]


@pytest.mark.model
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", SMALL, ids=[case.name for case in SMALL])
def test_each_small_case_comes_out_as_expected(case: Case) -> None:
    verdict = check(case, LIMIT_S, MEMORY_MIB)
    assert verdict.found == case.expected, "\n".join(verdict.trace)
    assert bool(verdict.trace) == case.breaks


def test_each_safeguard_that_is_shared_with_the_simulation_breaks_something_when_it_alone_is_off() -> None:
    alone = {case.off for case in SMALL if case.breaks and case.off is not None}
    assert set(SHARED) <= alone


def test_the_other_safeguards_break_something_or_are_said_to_be_carried_by_the_rest() -> None:
    carried = {"stable_answer", "nonce_of_release", "foreign_nonce"}
    broken = {case.off for case in CASES if case.breaks}
    held = {case.off for case in CASES if not case.breaks}
    assert carried <= held
    assert set(FINER) - carried <= broken


def test_the_simulation_has_the_same_safeguards_but_for_those_that_the_model_cannot_say() -> None:
    assert set(SAFEGUARDS) == set(SHARED) | set(NOT_HERE)


def test_every_assertion_of_the_model_has_a_word_and_each_word_breaks_in_a_small_case() -> None:
    lines = [line for line in MODEL.read_text(encoding="utf-8").splitlines() if "assert(" in line]
    words = {match[1] for line in lines if (match := re.search(r"/\* ([A-Z]+):", line))}
    assert all(re.search(r"/\* [A-Z]+:", line) for line in lines)
    assert words == set(INVARIANTS)
    assert {case.expected for case in SMALL} == {HOLDS, *INVARIANTS}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a huge holds -", "size 'huge'"),
        ("a small fails -", "'fails' is none of"),
        ("a small holds lock", "'lock' is no safeguard"),
        ("a small OVERLAP guard DEADLINE=1", "DEADLINE is said twice"),
    ],
)
def test_a_case_that_is_not_understood_is_refused_with_what_is_known(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(line)
