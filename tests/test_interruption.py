"""Ctrl-C interrupts a long native call within about a second, and the called function still works afterwards."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from tensormetrics.core.native.interruptible import _setters, interruptible

CALLS = """
import time, torch
from tensormetrics.association.functional import permutation_p_value
from tensormetrics.assignment import linear_sum_assignment
from tensormetrics.posterior.functional import sample_sums
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.structured.functional import sequence_overlap

x, y, counts = torch.randn(60_000, 256), torch.arange(60_000) % 100, torch.full((60, 60), 3.0)
costs, similarity = torch.arange(6000.0), torch.zeros(24_000, 24_000)

def partitions(n):
    permutation_p_value(x[0, :25], x[0, 25:50], replicates=n)

calls = {  # name -> call, size that is interrupted, size that ends
    # costs i j: all rows want the same columns, and paths are as long as they can be
    "one problem": (lambda n: linear_sum_assignment(costs[:n, None] * costs[:n]), 6000, 20),
    "many problems": (lambda n: linear_sum_assignment((costs[:100, None] * costs[:100]).expand(n, -1, -1)), 20_000, 2),
    "neighbors": (lambda n: TorchKNN()(x[:n], 10, x[:n] + 1, False), 60_000, 99),
    "ranks": (lambda n: AccuracyCalculator(["mean_average_precision"]).get_accuracy(x[:n], y[:n]), 60_000, 300),
    "partitions": (partitions, 10**10, 100),
    "exact": (lambda n: permutation_p_value(x[:n, :22], x[:n, 22:44], method="exact"), 1_000, 1),
    "sampler": (lambda n: sample_sums(counts, n), 400_000, 10),
    "sequence": (lambda n: sequence_overlap(similarity[:n, :n].contiguous()), 24_000, 5),
}
for name, (call, long, short) in calls.items():
    call(short)
    print(name, flush=True)
    try:
        call(long)
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
    call(short)
"""


@pytest.mark.full
@pytest.mark.skipif(not _setters(), reason="needs the native library: Python interrupts the references")
def test_sigint_interrupts_long_native_calls():
    delays = {}
    with subprocess.Popen([sys.executable, "-c", CALLS], stdout=subprocess.PIPE, text=True) as process:
        while name := process.stdout.readline().strip():
            time.sleep(1)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            delays[name] = float(process.stdout.readline()) - sent
    assert process.returncode == 0
    assert len(delays) == 8 and all(seconds < 1.5 for seconds in delays.values()), delays


def as_long_call(function):
    return interruptible(function, lambda *arguments: 1e9)


@pytest.fixture(autouse=True)
def flags(monkeypatch):
    """Pretend that a native library with interruptible loops is loaded."""
    monkeypatch.setattr("tensormetrics.core.native.interruptible._setters", lambda: [lambda flag: None])


def test_short_calls_run_in_calling_thread():
    assert interruptible(threading.current_thread, lambda: 1e7)() is threading.main_thread()
    assert as_long_call(threading.current_thread)() is not threading.main_thread()


def test_long_calls_of_other_threads_run_in_them():
    threads = []
    other = threading.Thread(target=lambda: threads.append(as_long_call(threading.current_thread)()))
    other.start()
    other.join()
    assert threads == [other]


@pytest.mark.parametrize(("inference", "grad"), [(False, False), (False, True), (True, False), (True, True)])
def test_long_call_inherits_state_of_calling_thread(inference, grad):
    def state():
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.get_num_threads(), torch.ones(1)

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            *expected, _ = state()
            *settings, made = as_long_call(state)()
            assert settings == expected and made.is_inference() == inference
    finally:
        torch.set_num_threads(threads)


def test_errors_propagate_from_long_call():
    with pytest.raises(ZeroDivisionError):
        as_long_call(lambda: 1 / 0)()


def test_modes_and_tensor_subclasses_run_in_calling_thread():
    where = as_long_call(lambda *tensors: threading.current_thread())
    assert where(torch.ones(1)) is not threading.main_thread()
    assert where(torch.ones(1, device="meta")) is where(torch.nn.Parameter(torch.ones(1))) is threading.main_thread()
    with torch._subclasses.FakeTensorMode():
        assert where() is threading.main_thread()
    threads = []
    torch.vmap(lambda x: threads.append(where()) or x)(torch.ones(2))
    assert threads == [threading.main_thread()]


def test_handler_without_exception_lets_call_finish():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert as_long_call(lambda: time.sleep(0.3) or 5)() == 5 and seen == [1]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert as_long_call(threading.current_thread)() is threading.main_thread()
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigint_sets_flag_and_waits_for_call(monkeypatch):
    flags, ended = [], []
    monkeypatch.setattr("tensormetrics.core.native.interruptible._setters", lambda: [flags.append])

    def loops():
        (flag,) = flags
        while not flag._obj.value:
            time.sleep(0.01)
        ended.append(True)

    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        as_long_call(loops)()
    assert ended
