"""Pictures of `results/gallery.md`, on white and on black, and that page: `python -m benchmarks --gallery`."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

FOLDER = "gallery"  # next to the page
STYLES = {"": "default", "-dark": "dark_background"}


class Picture(NamedTuple):
    title: str
    code: str  # that draws it
    draw: Callable[[], Any]  # to a Figure


def first() -> Any:
    """Draw the left half of the demo's picture."""
    from tensormetrics._cli.demo import draw_curves
    from tensormetrics.core.results.plots import new_axes

    figure, (axes,) = new_axes(None, (9, 4.2))
    draw_curves(axes, history())
    return figure


def history(epochs: list[Any] = []) -> list[Any]:  # noqa: B006 (both styles share one run)
    import json

    import torch

    from tensormetrics._cli.demo import run

    if not epochs:
        with TemporaryDirectory() as folder:
            run(torch.device("cpu"), epochs=12, seed=0, out=Path(folder))
            epochs.extend(json.loads((Path(folder) / "report.json").read_text())["epochs"])
    return epochs


def points(noise: float = 0.5, seed: int = 0) -> Any:
    import torch

    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(300) % 3
    return torch.eye(3)[labels] + noise * torch.randn(300, 3, generator=generator), labels


def neighbors() -> Any:
    from tensormetrics.retrieval import AccuracyCalculator

    metric = AccuracyCalculator()
    metric.update(*points())
    return metric.plot()[0]


def steps() -> Any:
    from tensormetrics.retrieval import AveragePrecisionAtR

    estimates = []
    for epoch in range(6):
        metric = AveragePrecisionAtR()
        metric.update(*points(0.9 - 0.1 * epoch, epoch))
        estimates.append(metric.interval())
    return AveragePrecisionAtR().plot(estimates)[0]


def classes() -> Any:
    from tensormetrics.posterior import ConfusionPosterior

    metric = ConfusionPosterior(3, ["acc", "f1@macro", "tpr"])
    metric.update(*points())
    return metric.plot()[0]


def study() -> Any:
    from tensormetrics.posterior import Study

    result = Study(seed=0, metrics={"acc": {"aggregation": "fe"}})
    for name, right in {"mlp/fold 1": 88, "mlp/fold 2": 84, "cnn/fold 1": 92, "cnn/fold 2": 95}.items():
        result.add_experiment(name, [[right, 100 - right], [98 - right, right + 2]])
    return result


def distributions() -> Any:
    return study().plot("acc")[0]


def difference() -> Any:
    return study().plot("acc", experiments=["cnn/fold 2"], minus="mlp/fold 2", rope=0.01)[0]


def forest() -> Any:
    made = study()
    names = [*made.list_experiments(), "mlp/aggregated", "cnn/aggregated"]
    return made.table("acc", experiments=names).plot()[0]


def queries() -> Any:
    # Three models of different random vectors, each with a known amount of bias.
    import torch

    from tensormetrics.association import RND, Query, WordEmbeddingModel, run_queries

    vocabulary = "he him man she her woman work wage office home care child".split()
    queries = [
        Query([vocabulary[:3], vocabulary[3:6]], [vocabulary[6:9]], ["male", "female"], ["career"]),
        Query([vocabulary[:3], vocabulary[3:6]], [vocabulary[9:]], ["male", "female"], ["family"]),
    ]
    models = []
    for seed, lean in enumerate((0.2, 0.8, 1.5)):
        vectors = torch.randn(12, 30, generator=torch.Generator().manual_seed(seed))
        vectors[:3, 0] += 3 * lean
        vectors[6:9, 0] += 3 * lean
        models.append(WordEmbeddingModel.from_tensor(vectors, vocabulary, f"leaning {lean}"))
    return run_queries(RND(replicates=1000), queries, models).plot()[0]


def entities() -> Any:
    from tensormetrics.structured import SpanScores

    metric = SpanScores(labels=["LOC", "ORG", "PER"], replicates=1000)
    right = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "O", "B-PER"], ["B-LOC", "O", "O", "O"]] * 20
    wrong = [["B-PER", "O", "O", "B-LOC"], ["O", "B-LOC", "O", "B-PER"], ["B-LOC", "O", "B-ORG", "O"]]
    metric.update_tags([wrong[k % 3] if k % 4 == 0 else tags for k, tags in enumerate(right)], right)
    return metric.plot()[0]


PICTURES = {
    "first": Picture("A training run", "python -m tensormetrics demo", first),
    "neighbors": Picture("Neighbors and clusters", "AccuracyCalculator().plot()", neighbors),
    "steps": Picture("A metric over epochs", "metric.plot([metric_of_epoch_0, metric_of_epoch_1, ...])", steps),
    "classes": Picture("Scores of a confusion matrix", "ConfusionPosterior(3, [...]).plot()", classes),
    "distributions": Picture("Posteriors of experiments", 'study.plot("acc")', distributions),
    "difference": Picture(
        "A comparison of two", 'study.plot("acc", experiments=[...], minus=..., rope=0.01)', difference
    ),
    "forest": Picture("Folds and what they are pooled to", 'study.table("acc", experiments=[...]).plot()', forest),
    "queries": Picture("Bias of three models", "run_queries(RND(replicates=1000), queries, models).plot()", queries),
    "entities": Picture("Entities by label", "SpanScores(labels=[...]).plot()", entities),
}


def labels_of(figure: Any) -> str:
    """Return the words of a picture, which its file keeps: they tell whether it is of this version."""
    axes = figure.get_axes()
    legends = [*figure.legends, *(legend for ax in axes if (legend := ax.get_legend()))]
    texts = [text for ax in axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_yticklabels())]
    texts += [text for legend in legends for text in legend.get_texts()]
    words = (" ".join(text.get_text().split()) for text in texts)
    return "; ".join(word for word in words if any(map(str.isalpha, word)))


def page() -> str:
    lines = ["# Pictures", "", "Drawn by `python -m benchmarks --gallery`: on white, and in matplotlib's style"]
    lines += ['"dark_background", which the pictures follow. GitHub shows the ones that match its theme.']
    for name, picture in PICTURES.items():
        lines += ["", f"## {picture.title}", "", f"`{picture.code}`", "", "<picture>"]
        lines += [f'<source media="(prefers-color-scheme: dark)" srcset="{FOLDER}/{name}-dark.png">']
        lines += [f'<img src="{FOLDER}/{name}.png" alt="{picture.title}">', "</picture>"]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write all pictures and their page."""
    from matplotlib import style as styles

    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / "gallery.md").write_text(page())
    for suffix, style in STYLES.items():
        with styles.context(style):
            for name, picture in PICTURES.items():
                figure = picture.draw()
                metadata = {"Software": None, "Description": labels_of(figure)}
                options = {"dpi": 100, "metadata": metadata, "pil_kwargs": {"optimize": True}}
                figure.savefig(folder / FOLDER / f"{name}{suffix}.png", **options)
                print(f"{FOLDER}/{name}{suffix}.png")
