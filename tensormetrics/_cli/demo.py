"""A training run on scikit-learn's digits, measured after every epoch by the metrics of three domains."""

import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset, random_split

from ..core.arguments.progress import progress_bar
from ..core.results.estimates import Estimate
from ..core.results.plots import FONT, dress, ink, legend_outside, line_style, new_axes, palette
from ..core.results.table import Table
from ..core.text.files import open_atomic
from ..posterior import ConfusionPosterior
from ..retrieval import AccuracyCalculator, EmbeddingClusterAccuracy, TorchKMeans

CLASSES, BATCH = 10, 128
POSTERIOR = {"acc": "accuracy", "f1@macro": "macro F1"}
NEIGHBORS = {
    "precision_at_1": "precision at 1",
    "r_precision": "R-precision",
    "mean_average_precision_at_r": "MAP at R",
}
SCORES = POSTERIOR | NEIGHBORS | {"cluster_accuracy": "cluster accuracy"}


class DigitNet(nn.Module):
    """(n, 64) pixels -> (n, 16) embeddings of length 1 and (n, 10) class logits."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 16, 16),
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        embeddings = normalize(self.trunk(pixels))
        return embeddings, self.head(10 * embeddings)  # unscaled, a softmax of bounded logits would stay flat


def supervised_contrastive(embeddings: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    # embeddings: (n, D) of length 1, labels: (n,)  ->  ()
    """Compute the loss of Khosla et al., "Supervised contrastive learning", 2020, doi:10.48550/arXiv.2004.11362."""
    diagonal = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    log_probabilities = (embeddings @ embeddings.mT / temperature).masked_fill(diagonal, -torch.inf).log_softmax(1)
    positives = (labels[:, None] == labels) & ~diagonal
    return -(log_probabilities.masked_fill(~positives, 0).sum(1) / positives.sum(1).clamp(min=1)).mean()


class Validation:
    """The hook: three metrics fed batch by batch on the device, read once per epoch."""

    def __init__(self, device: torch.device) -> None:
        self.retrieval = AccuracyCalculator([*NEIGHBORS]).to(device)
        self.clusters = EmbeddingClusterAccuracy(CLASSES, TorchKMeans(init="k-means++", n_init=10)).to(device)
        self.posterior = ConfusionPosterior(CLASSES, list(POSTERIOR)).to(device)

    @torch.inference_mode()
    def __call__(self, model: nn.Module, loader: DataLoader) -> dict[str, Any]:
        for pixels, labels in loader:
            embeddings, logits = model(pixels)
            self.retrieval.update(embeddings, labels)
            self.clusters.update(embeddings, labels)
            self.posterior.update(logits, labels)
        scores = {**self.retrieval.interval(), **self.posterior.interval()}
        scores["cluster_accuracy"] = self.clusters.interval()
        for metric in (self.retrieval, self.clusters, self.posterior):
            metric.reset()
        return {name: dict(zip(("value", "low", "high"), map(float, scores[name]), strict=True)) for name in SCORES}


def run(device: torch.device, *, epochs: int, seed: int, out: Path) -> int:
    """Train, print a table and write the report; return 130 if interrupted, with the epochs measured so far."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32, device=device)
    data = TensorDataset(pixels, torch.tensor(digits.target, device=device))
    train, held_out = random_split(data, [1200, len(data) - 1200])
    train_loader, loader = DataLoader(train, BATCH, shuffle=True, drop_last=True), DataLoader(held_out, BATCH)
    model = DigitNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    validate, history, interrupted = Validation(device), [], False

    try:
        with progress_bar(epochs * len(train_loader), "batch", transient=True) as progress:
            for epoch in range(1, epochs + 1):
                total = torch.zeros((), device=device)
                for pixels, labels in train_loader:
                    embeddings, logits = model(pixels)
                    loss = supervised_contrastive(embeddings, labels) + cross_entropy(logits, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total += loss.detach()
                    progress.advance(1)
                result = validate(model, loader)
                history.append({"epoch": epoch, "loss": float(total / len(train_loader)), **result})
                progress.describe(f"epoch {epoch}/{epochs}: precision@1 {result['precision_at_1']['value']:.3f}")
    except KeyboardInterrupt:
        interrupted = True

    if history:
        print(table(history))
    if interrupted:
        print(f"interrupted: {len(history)} of {epochs} epochs were measured")
    report = {
        "data": f"scikit-learn digits: {len(train)} images to train, {len(held_out)} held out",
        "device": str(device),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seed": seed,
        "interrupted": interrupted,
        "seconds": round(time.perf_counter() - started, 1),
        "epochs": history,
    }
    written = [out / "report.json"]
    with open_atomic(written[0]) as file:
        file.write((json.dumps(report, indent=1) + "\n").encode())
    if history:
        written.append(out / "report.png")
        with torch.inference_mode(), open_atomic(written[1]) as file:
            pixels, labels = held_out[:]
            draw(history, model(pixels)[0], labels).savefig(file, format="png", dpi=150)
    print(f"wrote {' and '.join(map(str, written))}")
    return 130 if interrupted else 0


def table(history: list[dict[str, Any]]) -> Table:
    """Return the scores of held-out digits after the first and the last epoch, with their intervals."""
    rows = {f"epoch {row['epoch']}": row for row in (history[0], history[-1])}
    cells = [
        [Estimate(*torch.tensor([*row[name].values()], dtype=torch.float64)) for row in rows.values()]
        for name in SCORES
    ]
    return Table([*SCORES.values()], [*rows], cells, caption="95 % intervals", index="held-out digits")


def draw(history: list[dict[str, Any]], embeddings: Tensor, labels: Tensor) -> Any:
    """Draw metrics by epoch, with intervals as bars, and the held-out embeddings in two dimensions."""
    figure, (curves, view) = new_axes(None, (13, 5.2), 1, 2)
    draw_curves(curves, history)
    draw_view(view, embeddings, labels)
    return figure


def draw_curves(curves: Any, history: list[dict[str, Any]]) -> None:
    epochs = [row["epoch"] for row in history]
    dress(curves, grid="y")
    rare = 1 + len(history) // 20  # more bars than that would cover each other
    for i, (name, label) in enumerate(SCORES.items()):
        values, low, high = (np.array([row[name][field] for row in history]) for field in ("value", "low", "high"))
        bars = (values - low).tolist(), (high - values).tolist()
        style = line_style(i) | {"errorevery": rare, "markevery": rare}
        positions = np.array(epochs) + 0.1 * (i - (len(SCORES) - 1) / 2)  # scores often coincide
        curves.errorbar(positions, values, bars, capsize=2, label=label, **style)
    curves.set(xlabel="Epoch", ylabel="Score", xlim=(0.5, len(history) + 0.5))
    curves.set_title("Held-out digits (bars: 95% intervals)", fontsize=FONT + 1)
    curves.locator_params(axis="x", integer=True, min_n_ticks=1)
    legend_outside(curves)


def draw_view(view: Any, embeddings: Tensor, labels: Tensor) -> None:
    # embeddings: (n, D)  labels: (n,)
    from sklearn.manifold import TSNE

    dress(view, frame=())
    points = TSNE(init="pca", random_state=0).fit_transform(embeddings.cpu().numpy())
    digits = labels.cpu().numpy()
    for digit, color in enumerate((*palette(), ink(), "0.5")):
        x, y = points[digits == digit].T
        view.scatter(x, y, s=30, facecolors=color, marker=f"${digit}$", edgecolors="0.2", linewidths=0.1)
    view.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    view.set_title("Held-out embeddings, each drawn as its digit", fontsize=FONT + 1)
