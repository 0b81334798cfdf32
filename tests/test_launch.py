"""Launches of compiled Triton kernels pass what Triton passes; a driver without a card compiles and records them."""

import time
from types import SimpleNamespace

import pytest
import torch
from kernels import INTERPRETED

from tensormetrics.core.native import triton as launches

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(INTERPRETED, reason="needs Triton's compiler")]


@pytest.fixture
def recorded(monkeypatch) -> list[tuple]:
    """Return the list of (grid, arguments) of the launches of a driver for sm_90."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    record: list[tuple] = []
    utils = SimpleNamespace(load_binary=lambda *_: (None, 7, 32, 0, 1024), unload_module=lambda _: None)
    utils.get_device_properties = lambda device: {"max_shared_mem": 2**17}
    driver = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 5,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        launcher_cls=lambda source, metadata: lambda *arguments: record.append(arguments),
        utils=utils,
    )
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    monkeypatch.setattr(launches, "_READY", {})
    monkeypatch.setattr(launches, "_is_trusted", True)
    return record


STORAGE = torch.zeros(80, dtype=torch.int8)
OPTIONS = {"SIZE": 32, "num_warps": 1, "enable_fp_fusion": False}


def launch_signs(start: int, offset: int) -> None:
    from tensormetrics.association.resampling import kernels

    launches.launch(kernels._signs, (2,), STORAGE[start : start + 64], offset, 32, 32, 32, **OPTIONS)


@pytest.mark.parametrize("start", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_launch_of_compiled_kernel_passes_arguments_of_triton(start, k, recorded, monkeypatch):
    launch_signs(start, k)
    monkeypatch.setattr(launches, "bind", lambda *_: pytest.fail("was bound again"))
    launch_signs(start, k)

    first, second = (x[:6] + x[9:] for x in recorded)  # without metadata and hooks of profilers
    pairs = zip(first, second, strict=True)
    assert all(x is y or x == y if not isinstance(x, torch.Tensor) else x.data_ptr() == y.data_ptr() for x, y in pairs)
    assert first[:3] == (2, 1, 1) and first[-5:] == (k, 32, 32, 32, 32)


def test_launch_binds_again_for_another_specialization(recorded, monkeypatch):
    bound, bind = [], launches.bind
    monkeypatch.setattr(launches, "bind", lambda *arguments: bound.append(arguments) or bind(*arguments))
    for start, k in ((0, 1), (1, 1), (0, 2**31), (0, 7), (0, 16)):  # k is not specialized, but for its width
        launch_signs(start, k)
    assert len(bound) == 3 and len(recorded) == 5


def test_launch_of_compiled_kernel_takes_microseconds(recorded):
    spent = []
    for _ in range(200):
        start = time.perf_counter()
        launch_signs(0, 1)
        spent.append(time.perf_counter() - start)
    assert len(launches._READY) == 1 and sorted(spent)[20] < 40e-6  # about 7 on a quiet machine


@pytest.mark.parametrize("error", [TypeError("other arguments"), None])
def test_trial_that_fails_with_compiled_kernels_leaves_binding(error, recorded, monkeypatch):
    def trial(device: torch.device) -> bool:
        if error:
            raise error
        return False

    launches.try_compiled(trial, torch.device("cpu"))
    monkeypatch.setattr(launches, "_READY", dict.fromkeys(launches._READY, "never used"))
    launch_signs(0, 1)
    launch_signs(0, 1)
    assert len(recorded) == 2 and not launches._is_trusted
