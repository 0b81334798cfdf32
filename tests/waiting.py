"""Torch's synchronization debug mode, in which an operation that makes the host wait for the GPU raises."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def no_waiting() -> Iterator[None]:
    try:
        _set_mode("error")
        yield
    finally:
        allow_waiting()


def allow_waiting() -> None:
    _set_mode("default")


def _set_mode(mode: str) -> None:
    # Torch warns that this is a prototype, once and after it has set the mode: an error would leave it on.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


@pytest.fixture(autouse=True)
def waiting_is_allowed() -> Iterator[None]:
    """Reset the mode after each test, so that a test that leaves it on does not affect the next one."""
    yield
    if torch.cuda.is_initialized():
        allow_waiting()
