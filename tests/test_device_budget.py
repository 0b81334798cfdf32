"""No metric and no function comes to ask more of a device than it did: launches, host waits, bytes."""

import json

import pytest
from cases import FUNCTIONS, METRICS
from device_budget import FILE, TORCH, counts

RECORDED = json.loads(FILE.read_text())
KINDS = ("operators", "waits", "bytes")


def test_every_row_has_a_budget():
    assert RECORDED["rows"].keys() == (METRICS | FUNCTIONS).keys(), "run python tests/device_budget.py NAME ..."


@pytest.mark.skipif(TORCH != RECORDED["torch"], reason=f"the counts are those of torch {RECORDED['torch']}")
@pytest.mark.parametrize("name", METRICS | FUNCTIONS)
def test_no_budget_is_exceeded(name):
    assert name in RECORDED["rows"], f"run python tests/device_budget.py {name}"
    more = []
    for call, sizes in counts((METRICS | FUNCTIONS)[name]).items():
        for size, (found, allowed) in enumerate(zip(sizes, RECORDED["rows"][name][call], strict=True)):
            more += [
                f"{call}, size {size}: {got} {kind}, allowed {most}"
                for kind, got, most in zip(KINDS, found, allowed, strict=True)
                if got > most
            ]
    assert more == [], "make it ask less; where it has to ask more, run python tests/device_budget.py"
