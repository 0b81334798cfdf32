"""Our metrics as `compute_metrics` of Hugging Face's Trainer, batch by batch."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, points: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layer(points)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits, "embedding": points}


def test_trainer_reports_what_the_metrics_say_of_all_items(tmp_path):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(50) % 2
    points = torch.randn(50, 2, generator=generator) + labels[:, None]
    rows = [{"points": p, "labels": int(y)} for p, y in zip(points, labels, strict=True)]
    posterior = ConfusionPosterior(2, ["acc"], replicates=200)
    neighbors = AccuracyCalculator(include=["precision_at_1"])

    def compute_metrics(output: Any, compute_result: bool) -> dict[str, float] | None:
        logits, embedding = output.predictions
        posterior.update(logits, output.label_ids)
        neighbors.update(embedding, output.label_ids)
        if not compute_result:
            return None
        values = posterior.compute() | neighbors.compute()
        posterior.reset()
        neighbors.reset()
        return {name: float(value) for name, value in values.items()}

    arguments = transformers.TrainingArguments(
        str(tmp_path),
        batch_eval_metrics=True,
        per_device_eval_batch_size=16,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    model = Classifier()
    reported = transformers.Trainer(model, arguments, eval_dataset=rows, compute_metrics=compute_metrics).evaluate()
    expected = ConfusionPosterior(2, ["acc"], replicates=200)
    expected.update(model.layer(points), labels)
    assert reported["eval_acc"] == float(expected.compute()["acc"])
    assert reported["eval_acc/low"] == float(expected.compute()["acc/low"])
    expected = AccuracyCalculator(include=["precision_at_1"])
    expected.update(points, labels)
    assert reported["eval_precision_at_1"] == float(expected.compute()["precision_at_1"])
