"""Iterative solvers stop when the host has read the convergence flag; steps after convergence change nothing."""

import pytest
import torch
from fake_device import DEVICE, Device

from tensormetrics.association.functional import rnsb
from tensormetrics.core.native import convergence as convergence_module
from tensormetrics.core.native.convergence import Convergence


def steps_until_reached(flags, device):
    convergence = Convergence()
    return next((i for i, flag in enumerate(flags) if convergence.is_reached(flag.to(device))), None)


def test_flag_on_cpu_is_read_immediately():
    flags = torch.tensor([True, True, False, False, False, False])
    assert steps_until_reached(flags, "cpu") == 2


def test_flag_on_device_is_read_later_without_synchronizing():
    flags = torch.tensor([True, True, False, False, False, False, False, False])
    with Device() as fake:
        flags = flags.to(DEVICE)
        fake.waits.clear()
        assert 2 < steps_until_reached(flags, DEVICE) < 8
        assert fake.waits == []
        assert steps_until_reached(flags[:2], DEVICE) is None


@pytest.mark.parametrize("state", ["is_tracing", "is_capturing"])
def test_flag_is_not_read_while_capturing_or_tracing(state, monkeypatch):
    monkeypatch.setattr(convergence_module, state, lambda: True)
    with Device():
        assert steps_until_reached(torch.zeros(8, dtype=torch.bool), DEVICE) is None


@pytest.mark.parametrize("shape", [(), (5,)])
@pytest.mark.parametrize("penalize_intercept", [True, pytest.param(False, marks=pytest.mark.full)])
def test_rnsb_steps_after_convergence_change_no_bit(shape, penalize_intercept, monkeypatch, generator):
    sets = [torch.randn(*shape, size, 12, generator=generator) for size in (6, 4, 5)]
    with Device() as fake:
        sets = [x.to(DEVICE) for x in sets]
        fake.operators = 0
        score = rnsb(*sets, penalize_intercept=penalize_intercept).cpu()
        operators = fake.operators
        monkeypatch.setattr(Convergence, "is_reached", lambda self, unfinished: False)
        of_all_steps = rnsb(*sets, penalize_intercept=penalize_intercept).cpu()
        assert operators < fake.operators / 5
    assert score.isfinite().all() and torch.equal(score, of_all_steps)
