"""A collection of our metrics, logged by Lightning: two ranks log what one logs."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection

from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("pytorch_lightning")


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (46,), generator=generator)
    return TensorDataset(torch.eye(3)[labels] + 0.6 * torch.randn(46, 3, generator=generator), labels)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(3))
        self.neighbors = MetricCollection(
            {"map": AveragePrecision(), "all": AccuracyCalculator(include=["precision_at_1", "r_precision"])}
        )
        self.posterior = ConfusionPosterior(3, ["acc", "f1@macro"], replicates=200)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        points, labels = batch
        logits = self.layer(points)
        self.neighbors.update(logits, labels)
        self.posterior.update(logits, labels)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.neighbors.compute())
        self.log_dict(self.posterior.compute())
        self.neighbors.reset()
        self.posterior.reset()

    def on_validation_end(self) -> None:
        values = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        (Path(self.trainer.default_root_dir) / f"{self.global_rank}.json").write_text(json.dumps(values))


def validate(folder: Path, ranks: int) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp_spawn" if ranks > 1 else "auto",
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
    )
    trainer.validate(Classifier(), DataLoader(data(), batch_size=8), verbose=False)


def test_two_ranks_log_what_one_logs(tmp_path):
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        validate(tmp_path / str(ranks), ranks)
    alone = json.loads((tmp_path / "1" / "0.json").read_text())
    points, labels = data().tensors
    expected = AccuracyCalculator(include=["precision_at_1"])
    expected.update(points, labels)
    assert alone["precision_at_1"] == pytest.approx(float(expected.compute()["precision_at_1"]))
    assert alone["acc"] == pytest.approx(float((points.argmax(1) == labels).double().mean()))
    assert alone["acc/low"] < alone["acc"] < alone["acc/high"]
    for rank in (0, 1):
        of_rank = json.loads((tmp_path / "2" / f"{rank}.json").read_text())
        assert of_rank == pytest.approx(alone, rel=1e-6)  # the rows come in another order
