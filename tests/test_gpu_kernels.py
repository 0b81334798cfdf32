"""GPU kernels are used only after a successful trial; tested on the fake device with kernels that fail in many ways."""

import re
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from click.testing import CliRunner
from fake_device import DEVICE, Device
from test_conformance import N, assert_same, on
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from tensormetrics.__main__ import main
from tensormetrics._cli.machine import gpu_checks, gpu_report
from tensormetrics.association.functional import permutation_p_value
from tensormetrics.core.native import gpu_kernels, native
from tensormetrics.core.native.gpu_kernels import FAMILIES, Answer, can_use

SEARCH = "tensormetrics.retrieval.search.kernels"
MODULES = [
    f"{SEARCH}.{name}"
    for name in ("nearest", "prepare", "canonical", "counting", "direct", "scores", "clusters", "assign")
]
MODULES += [f"tensormetrics.association.{name}.kernels" for name in ("resampling", "metrics")]
MODULES.append("tensormetrics.structured.tensors.kernels")
OF_OPERATORS = {"groups", "score sums"}  # which only the dispatcher of CUDA tensors tries
OF_CLUSTERS = {"cluster assignment", "cluster sums"}  # no row runs k-means
TRITON = {name for name, family in FAMILIES.items() if family.kind == "Triton"} - OF_OPERATORS - OF_CLUSTERS


@pytest.fixture
def gpu(monkeypatch) -> Iterator[None]:
    """Let the fake device count as a GPU on which no family was tried."""
    monkeypatch.setattr(gpu_kernels, "is_gpu", lambda device: device.type in ("cuda", DEVICE.type))
    monkeypatch.setattr(gpu_kernels, "capability_of", lambda device: (9, 0))
    monkeypatch.setattr(gpu_kernels, "find_spec", lambda name: name)
    monkeypatch.setattr(gpu_kernels, "_ANSWERS", {})
    gpu_kernels.kernels_disabled.cache_clear()
    yield
    gpu_kernels.kernels_disabled.cache_clear()


class Stub(types.ModuleType):
    """Module of kernels with the constants of the real module, whose functions all call `launch`."""

    TILE, DEPTH, GROUP, STRIDE, BLOCK, STRIP, WIDEST = 128, 64, 128, 4, 32, 8, 8192

    def __init__(self, name: str, launch: Callable) -> None:
        super().__init__(name)
        self.launch = launch

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: self.launch(name, *arguments, **options)


def install(monkeypatch, launch: Callable | None) -> None:
    for name in MODULES:
        module = launch and Stub(name, launch)
        monkeypatch.setitem(sys.modules, name, module)
        package, _, attribute = name.rpartition(".")
        __import__(package)
        if module is None:
            monkeypatch.delattr(sys.modules[package], attribute, raising=False)
        else:
            monkeypatch.setattr(sys.modules[package], attribute, module, raising=False)


def failing_launch(message: str) -> Callable:
    def launch(*_, **__):
        raise RuntimeError(message)

    return launch


def wrong_launch(name: str, first: Tensor, *rest, **_) -> Tensor:
    if name == "canonical_pairs":
        return torch.zeros(len(rest[1]), dtype=torch.float64, device=first.device)
    return first.zero_() if name.startswith("random") else first.sum(0).long()


def without_triton(monkeypatch) -> None:
    monkeypatch.setattr(gpu_kernels, "find_spec", lambda name: None)


def old_card(monkeypatch) -> None:
    monkeypatch.setattr(gpu_kernels, "capability_of", lambda device: (7, 5))
    install(monkeypatch, failing_launch("an old card was asked"))


def without_compiler(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    install(monkeypatch, failing_launch("Failed to find C compiler"))


FAILURES = {
    "gave other values than the CPU": lambda monkeypatch: install(monkeypatch, wrong_launch),
    "triton is not installed": without_triton,
    "compute capability is 7.5": old_card,
    "install gcc": without_compiler,
    "its trial raised ModuleNotFoundError": lambda monkeypatch: install(monkeypatch, None),
    "its trial raised RuntimeError: PassManager::run failed": lambda monkeypatch: install(
        monkeypatch, failing_launch("PassManager::run failed")
    ),
}


def compute_row(case: MetricCase | FunctionCase, device: torch.device, generator: torch.Generator) -> list:
    if isinstance(case, FunctionCase):
        return list(case.call(*on(device, case.inputs(generator, (2,)))))
    metric = case.make().to(device)
    metric.update(*on(device, case.inputs(generator, N)))
    return [metric.compute()]


ROWS = METRICS | FUNCTIONS


@pytest.fixture(scope="module")
def rows_using_triton() -> set[str]:
    """Return the names of the rows that query whether Triton kernels can be used."""
    devices, rows = [], set()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(gpu_kernels, "can_use", lambda name, device: devices.append(device) and False)
        for name, case in ROWS.items():
            if not name.startswith(("association.", "retrieval.")):  # the domains that have Triton kernels
                continue
            devices.clear()
            with Device():
                compute_row(case, DEVICE, torch.Generator().manual_seed(0))
            if any(device.type == DEVICE.type for device in devices):
                rows.add(name)
    assert {"retrieval.TorchKNN", "retrieval.HitRate", "association.permutation_p_value_drawn"} <= rows
    return rows


@pytest.mark.full
@pytest.mark.parametrize("reason", FAILURES)
def test_failing_kernels_fall_back_to_torch_after_one_warning(reason, gpu, rows_using_triton, monkeypatch):
    expected = {
        name: compute_row(ROWS[name], torch.device("cpu"), torch.Generator().manual_seed(0))
        for name in rows_using_triton
    }
    FAILURES[reason](monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in sorted(rows_using_triton):
            with Device():
                results = compute_row(ROWS[name], DEVICE, torch.Generator().manual_seed(0))
                results = tree_map(lambda x: x.cpu(), results)
            assert_same(results, expected[name], 1e-14)
    messages = [str(warning.message) for warning in caught if "kernels do not run" in str(warning.message)]
    assert len(messages) == len(gpu_kernels._ANSWERS) and {name for name, _ in gpu_kernels._ANSWERS} == TRITON
    assert any(reason in message for message in messages)
    assert not any(warning.runs for warning in gpu_kernels._ANSWERS.values())


@pytest.mark.parametrize(("alternative", "launches"), [("greater", 30), ("less", 30), ("two-sided", 45)])
def test_kernels_with_correct_trial_are_used(alternative, launches, gpu):
    options = {"alternative": alternative, "method": "approximate", "replicates": 500}
    for size in (3, 150):
        u, v = torch.randn(2, size, 20, generator=torch.Generator().manual_seed(1))
        u[1, 0] = torch.inf
        expected = permutation_p_value(u, v, **options)
        with warnings.catch_warnings(), Device(kernels=True, trials=True) as device:
            warnings.simplefilter("error")
            assert can_use("drawn sums", DEVICE) and can_use("canonical distances", DEVICE)
            u, v = u.to(DEVICE), v.to(DEVICE)
            device.launched.clear(), device.waits.clear()
            device.operators = 0
            p_values = permutation_p_value(u, v, **options)
            assert device.operators <= launches and not device.waits
        torch.testing.assert_close(p_values.value, expected, rtol=0, atol=0, equal_nan=True)
        assert device.launched == ["_units", "_partitions", "_write_digits", "_count", "_recount_undecided"]


def test_environment_variable_disables_kernels_silently(gpu, monkeypatch):
    monkeypatch.setenv("TENSORMETRICS_PLAIN", "1")
    install(monkeypatch, failing_launch("was asked"))
    with warnings.catch_warnings(), Device():
        warnings.simplefilter("error")
        assert {name: can_use(name, DEVICE) for name in FAMILIES} == dict.fromkeys(FAMILIES, False)
    monkeypatch.delenv("TENSORMETRICS_PLAIN")
    assert gpu_kernels.kernels_disabled()  # the variable is read only once


def test_kernels_are_not_tried_on_cpu(gpu, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "ask", lambda *_: pytest.fail("was tried"))
    assert not any(can_use(name, torch.device("cpu")) for name in FAMILIES)


@pytest.mark.parametrize("trace", ["compile", "fake tensors", "vmap"])
def test_tracing_uses_no_kernels_and_caches_no_answer(trace, gpu, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "ask", lambda *_: pytest.fail("was tried"))
    answers = []

    def function(x: Tensor) -> Tensor:
        answers.append(can_use("search", DEVICE))
        return x + 1

    if trace == "compile":
        torch.compile(function, backend="eager")(torch.ones(2))
    elif trace == "vmap":
        torch.func.vmap(function)(torch.ones(2))
    else:
        with FakeTensorMode():
            function(torch.ones(2))
    assert answers == [False] and gpu_kernels._ANSWERS == {}


@pytest.fixture
def report(gpu, monkeypatch) -> Callable[..., tuple[int, list[str]]]:
    """Return a runner of `info --gpu` on the fake device, where no family runs."""

    def run(reason: str = "not here") -> tuple[int, list[str]]:
        lines: list[str] = []
        monkeypatch.setattr(gpu_kernels, "_ANSWERS", {})
        monkeypatch.setattr(gpu_kernels, "ask", lambda *_: Answer(False, reason))
        with warnings.catch_warnings(), Device():
            warnings.simplefilter("ignore")
            return gpu_report.run(DEVICE, lines.append, times=False), lines

    return run


def test_report_names_every_family_and_check(report):
    status, lines = report()
    text = "\n".join(lines)
    assert status == 0 and "all answers are equal" in text, text
    assert all(re.search(rf"^  {name} +not available: not here$", text, re.MULTILINE) for name in FAMILIES)
    assert all(re.search(rf"^  {re.escape(name)} +equal$", text, re.MULTILINE) for name in gpu_checks.SMALL)


def fails(*_: Any) -> Tensor:
    raise RuntimeError("no kernel image")


def changed_at_7(value: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x.where(torch.arange(x.numel(), device=x.device).view(x.shape) != 7, value)


WRONG_KERNELS = {  # kind: what it makes of the result of a right one, and the line of the report
    "wrong value": (changed_at_7(1.5), "differs: 1 of 150 entries"),
    "last bit": (lambda x: torch.nextafter(x, x + 1), "differs: 150 of 150 entries"),
    "nan": (changed_at_7(torch.nan), "differs: 1 of 150 entries"),
    "order": (lambda x: x.flip(-1), r"differs: 1\d\d of 150 entries"),
    "nothing written": (torch.zeros_like, r"differs: 1\d\d of 150 entries"),
    "exception": (fails, "differs: RuntimeError: no kernel image"),
}


@pytest.mark.parametrize("check", ["exact", "to a tolerance"])
@pytest.mark.parametrize("kind", [None, *WRONG_KERNELS])
def test_report_of_wrong_kernel_exits_with_error(kind, check, report, monkeypatch):
    change, line = WRONG_KERNELS.get(kind, (lambda x: x, "equal"))

    class Kernels:  # on the device
        def lsa(self, cost: Tensor, *options: Any) -> tuple[Tensor, ...]:
            columns, rows, dual, *others = torch.ops.tensormetrics.lsa(cost, *options)
            return columns, rows, change(dual), *others

        def item_sums(self, out: Tensor, *arguments: Any) -> None:
            torch.ops.tensormetrics.item_sums(out, *arguments)
            out.copy_(change(out))

    parts = {
        "exact": lambda device: gpu_checks.assignments(device, 5, 30, 30, Kernels()),
        "to a tolerance": lambda device: gpu_checks.item_sums(device, 20, 150, Kernels()),
    }
    right = gpu_checks.SMALL["assignments, 30 x 30"]
    monkeypatch.setattr(gpu_report, "SMALL", {"right": right, "this": parts[check]})
    status, lines = report()
    text = "\n".join(lines)
    if check == "to a tolerance":
        line = "equal" if kind in (None, "last bit") else "differs: .*"
    assert re.search(rf"^  right +equal$\n^  this +{line}$", text, re.MULTILINE), text
    assert (status, "SOME ANSWERS DIFFER" in text) == ((0, False) if line == "equal" else (1, True))


def test_report_of_failed_trial_exits_with_error(report, monkeypatch):
    monkeypatch.setattr(gpu_report, "SMALL", {})
    assert report("its trial gave other values than the CPU")[0] == 1


needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


@needs_no_gpu
def test_check_gpu_without_gpu_exits_with_message():
    result = CliRunner().invoke(main, ["info", "--gpu"])
    assert result.exit_code == 3 and result.stdout == f"{gpu_report.NO_GPU}\n"


@pytest.mark.full
@needs_no_gpu
def test_check_gpu_runs_without_click():
    program = "import sys, runpy; sys.modules['click'] = None; sys.argv = ['tensormetrics', 'info', '--gpu']; "
    program += "runpy.run_module('tensormetrics', run_name='__main__')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (3, f"{gpu_report.NO_GPU}\n"), process.stderr


def test_check_gpu_of_unknown_device_exits_with_error():
    result = CliRunner().invoke(main, ["info", "--gpu", "--device", "gpu0"])
    assert result.exit_code == 2 and "--device: got 'gpu0', wanted a GPU" in result.stderr


@pytest.mark.full
def test_families_of_all_packages_are_registered():
    code = "import tensormetrics._cli.machine.{} as machine; print(*sorted(machine.gpu_kernels.FAMILIES), sep=',')"
    names = "canonical distances,cluster assignment,cluster sums,clustering scores,counting,direct search,drawn sums,"
    names += "groups,neighbor scores,preparation,sampler,score sums,search,solver"
    for module in ("info", "gpu_report"):  # the two that report on every family
        process = subprocess.run([sys.executable, "-c", code.format(module)], capture_output=True, text=True)
        assert process.stdout.strip() == names, process.stderr


def test_family_that_nobody_registered_raises():
    for device in (DEVICE, torch.device("cpu")):
        with pytest.raises(LookupError, match="family: got 'sorting', wanted a registered one .*; import the package"):
            can_use("sorting", device)


def test_graph_capture_before_first_use_raises(gpu, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="call it once before capturing"):
        can_use("search", DEVICE)
    assert gpu_kernels._ANSWERS == {}
    gpu_kernels._ANSWERS["search", 0] = Answer(True)
    assert can_use("search", DEVICE)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("called a synchronizing CUDA operation"),
        RuntimeError("CUDA error: operation not permitted when stream is capturing"),
    ],
)
def test_trial_that_fails_for_reason_of_the_moment_is_not_remembered(error, gpu, monkeypatch):
    raised = [error]

    def trial(device: torch.device) -> bool:
        if raised:
            raise raised.pop()
        return True

    monkeypatch.setitem(FAMILIES, "solver", FAMILIES["solver"]._replace(trial=trial))
    with Device():
        assert not can_use("solver", DEVICE) and gpu_kernels._ANSWERS == {}
        assert can_use("solver", DEVICE)


@pytest.mark.parametrize("fails", [False, True])
def test_trial_runs_without_sync_debug_mode(fails, gpu, monkeypatch):
    modes = [2]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def trial(device: torch.device) -> bool:
        assert modes[-1] == 0
        if fails:
            raise torch.OutOfMemoryError
        return True

    monkeypatch.setitem(FAMILIES, "solver", FAMILIES["solver"]._replace(trial=trial))
    with Device():
        assert can_use("solver", DEVICE) is not fails
    assert modes == [2, 0, 2]


def test_trial_restores_global_state_of_torch(gpu, monkeypatch):
    seen = []

    def trial(device: torch.device) -> bool:
        seen.append(
            (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.is_inference(torch.ones(1)))
        )
        raise ValueError("failed")

    monkeypatch.setitem(FAMILIES, "solver", FAMILIES["solver"]._replace(trial=trial))
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.inference_mode(), Device(), pytest.warns(RuntimeWarning, match="linear_sum_assignment"):
            assert not can_use("solver", DEVICE)
        assert seen == [(torch.float32, False, False)]
        assert torch.get_default_dtype() == torch.float64
        assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_concurrent_threads_run_one_trial(gpu, monkeypatch):
    tried, start = [], threading.Barrier(4)
    monkeypatch.setattr(gpu_kernels, "ask", lambda name, device: tried.append(name) or Answer(True))

    def use(_: int) -> bool:
        start.wait()
        return can_use("search", DEVICE)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4))) and tried == ["search"]


def test_library_operator_is_tried_before_first_use(gpu, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "is_gpu", lambda device: True)
    operator = native.define("tried(Tensor x) -> Tensor", torch.empty_like, native.Operator("lsa", "a test", 1))
    del native.OPERATORS["tried"]  # monkeypatch adds it only for this test
    monkeypatch.setitem(native.OPERATORS, "tried", native.Operator("lsa", "a test", 1))
    native.LIBRARY.impl("tried", lambda x: x + 1, "CPU")
    native.try_before_use("tried", lambda x: x + 2, "CPU")
    for can_run, value in ((True, 1.0), (False, 2.0)):
        monkeypatch.setattr(gpu_kernels, "_ANSWERS", {("solver", 0): Answer(can_run)})
        assert operator(torch.zeros(2)).tolist() == [value, value]
    monkeypatch.setattr(gpu_kernels, "_ANSWERS", {})
    monkeypatch.setattr(gpu_kernels, "is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="before capturing"):
        operator(torch.zeros(2))
