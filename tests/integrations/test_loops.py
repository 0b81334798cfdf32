"""Loops of Accelerate and Ignite: two processes see what one sees. The README has the same loops."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import HitRate


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (45,), generator=generator)  # the last batch is filled up on two processes
    return TensorDataset(torch.eye(3)[labels] + 0.6 * torch.randn(45, 3, generator=generator), labels)


def accelerated() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, loader = accelerator.prepare(torch.nn.Linear(3, 3), DataLoader(data(), batch_size=8))
    metric = ConfusionPosterior(3, ["acc"], replicates=100, sync_on_compute=False).to(accelerator.device)
    for points, target in loader:
        model(points)
        metric.update(*accelerator.gather_for_metrics((points, target)))
    alone = ConfusionPosterior(3, ["acc"], replicates=100, sync_on_compute=False)
    alone.update(*data().tensors)
    assert metric.counts.equal(alone.counts)
    assert metric.compute()["acc/low"] == alone.compute()["acc/low"]


def test_two_processes_of_accelerate():
    """In a process of its own: it forks, which would deadlock beside threads of earlier tests."""
    pytest.importorskip("accelerate")
    code = (
        "from accelerate import debug_launcher; from test_loops import accelerated; debug_launcher(accelerated, (), 2)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True, timeout=300)


def test_ignite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = pytest.importorskip("ignite.engine")
    metric, alone = HitRate(1), HitRate(1)
    evaluator = engine.Engine(lambda engine, batch: metric.update(*batch))
    evaluator.add_event_handler(
        engine.Events.EPOCH_COMPLETED, lambda engine: engine.state.metrics.update(found=float(metric.compute()))
    )
    alone.update(*data().tensors)
    assert evaluator.run(DataLoader(data(), batch_size=8)).metrics == {"found": float(alone.compute())}
