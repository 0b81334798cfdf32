"""The mode that forbids waiting is off after every test, on a torch that warns of it."""

import warnings

import pytest
import torch
from waiting import allow_waiting, no_waiting, waiting_is_allowed


@pytest.fixture
def modes(monkeypatch):
    """All modes that were set, by a torch that warns after it has set one."""
    modes = []

    def set_mode(mode):
        modes.append(mode)
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    return modes


def test_waiting_is_forbidden_within_and_allowed_after(modes):
    with no_waiting():
        assert modes == ["error"]
    assert modes == ["error", "default"]
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        raise RuntimeError("called a synchronizing CUDA operation")
    assert modes[-1] == "default"
    allow_waiting()
    with pytest.raises(UserWarning, match="prototype"):  # warnings are errors again
        torch.cuda.set_sync_debug_mode("default")


def test_a_test_that_leaves_it_on_does_not_reach_the_next_one(modes, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    around = waiting_is_allowed.__wrapped__()
    next(around)
    modes.append("error")
    assert next(around, "over") == "over" and modes[-1] == "default"
