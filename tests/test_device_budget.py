"""No metric and no function needs more launches, host waits, bytes or copies of a device than recorded."""

import json

import pytest
import torch
from cases import FUNCTIONS, METRICS
from device_budget import FILE, TORCH, count_device_use, counts
from fake_device import DEVICE, Device

from tensormetrics.assignment import linear_sum_assignment

RECORDED = json.loads(FILE.read_text())
KINDS = ("operators", "waits", "bytes", "elements in one copy")
SLACK = 1.0 if TORCH == RECORDED["torch"] else 1.25  # another torch decomposes operators differently


def test_every_row_has_device_budget():
    assert RECORDED["rows"].keys() == (METRICS | FUNCTIONS).keys(), "run python tests/device_budget.py NAME ..."


@pytest.mark.full
@pytest.mark.parametrize("name", METRICS | FUNCTIONS)
def test_device_use_is_within_budget(name):
    excess = []
    for call, sizes in counts((METRICS | FUNCTIONS)[name]).items():
        for size, (counted, allowed) in enumerate(zip(sizes, RECORDED["rows"][name][call], strict=True)):
            excess += [
                f"{call}, size {size}: {count} {kind}, allowed {limit}"
                for kind, count, limit in zip(KINDS, counted, allowed, strict=True)
                if count > limit * (1 if kind == "waits" else SLACK)
            ]
    assert excess == [], "reduce its device use, or record the new counts by python tests/device_budget.py"


GOALS = {  # row and call -> operators and waits, at both sizes
    ("assignment.linear_sum_assignment", "call"): (1, 0),
    ("association.MLEAT", "update"): (30, 0),
    ("association.RIPA", "update"): (30, 0),
    ("association.RNSB", "update"): (621, 0),  # one keeps the item
    ("association.WEAT", "update"): (15, 0),
    ("posterior.ConfusionPosterior", "compute"): (90, 3),
    ("structured.CorefScores", "update"): (100, 0),
    ("structured.EventScores", "update"): (130, 0),
    ("structured.SpanScores", "update"): (35, 0),
    ("uncertainty.Ratings", "compute"): (1050, 4),
}


@pytest.mark.full
@pytest.mark.parametrize(("name", "call"), GOALS)
def test_device_use_meets_goal(name, call):
    for operators, waits, _, copied in counts((METRICS | FUNCTIONS)[name])[call]:
        assert operators <= SLACK * GOALS[name, call][0] and waits <= GOALS[name, call][1]
        assert copied <= 64


def test_checked_assignment_waits_once():
    with Device() as device:
        cost = torch.rand(3, 5, 6).to(DEVICE)
        assert count_device_use(device, lambda: linear_sum_assignment(cost))[:2] == [3, 1]
