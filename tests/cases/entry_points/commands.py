"""Quantities that the command line prints, compared with those of the library."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from click.testing import CliRunner
from torch import Generator, Tensor

from tensormetrics import association, posterior, retrieval, uncertainty
from tensormetrics.__main__ import main

from . import retrieval as retrieval_entries
from .association import as_query, random_sets
from .quantity import Quantity, updated
from .structured import SENTENCES, updated_tags


def run_command(files: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """Return the JSON result of a command on files, whose names are among the arguments.

    Raises:
        ValueError: If the command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            if isinstance(content, str):
                (Path(folder) / name).write_text(content)
            else:
                np.save(Path(folder) / name, content)
        paths = [str(Path(folder) / argument) if argument in files else argument for argument in arguments]
        result = CliRunner().invoke(main, [*paths, "--json", str(Path(folder) / "o.json")])
        if result.exit_code:
            raise ValueError(result.output)
        return json.loads((Path(folder) / "o.json").read_text())


def retrieval_command(name: str, *options: str) -> Any:
    def metric_estimate(x: Tensor, labels: Tensor) -> Any:
        files = {"x.npy": x.numpy(), "labels.npy": labels.numpy()}
        return run_command(files, "retrieval", "x.npy", "labels.npy", "--metric", name, *options)["metrics"][name]

    return metric_estimate


def estimate(interval: dict[str, float]) -> uncertainty.Estimate:
    return uncertainty.Estimate(*(torch.tensor(interval[end], dtype=torch.float64) for end in ("value", "low", "high")))


def updated_calculator(name: str) -> Any:
    return lambda *data: updated(retrieval.AccuracyCalculator([name]), *data)


def trec_files(x: Tensor, labels: Tensor) -> dict[str, str]:
    order, relevant, _ = retrieval_entries.ranked_lists(x, labels)
    run, qrels = [], []
    for query, (row, is_relevant) in enumerate(zip(order.tolist(), relevant.tolist(), strict=True)):
        run += [f"q{query} Q0 d{j} {position} {-position} t" for position, j in enumerate(row)]
        qrels += [
            f"q{query} 0 d{j} {int(relevance)}"
            for j, relevance in zip(row, is_relevant, strict=True)
            if any(is_relevant)
        ]
    return {"run.txt": "\n".join(run), "qrels.txt": "\n".join(qrels)}


def trec_command(measure: str) -> Any:
    return lambda *data: run_command(trec_files(*data), "trec", "run.txt", "qrels.txt", "--metric", measure)["metrics"][
        measure
    ]["value"]


EMBEDDINGS = {
    name: retrieval_entries.EMBEDDINGS[name] for name in ("ordinary", "ties", "lone queries", "integers", "half")
}
EMBEDDINGS |= {name: retrieval_entries.EMBEDDINGS[name] for name in ("labels of another length", "infinite")}
FILES = dict.fromkeys(("labels of another length", "infinite"), "its files hold lists of documents")


def rank_quantity(name: str, measure: str) -> Quantity:
    trec_name = f"retrieval.evaluate_run, tensormetrics trec {measure}"
    return Quantity(
        EMBEDDINGS,
        {
            "retrieval.AccuracyCalculator": lambda *data: updated_calculator(name)(*data).compute()[name],
            "retrieval.AccuracyCalculator, tensormetrics retrieval": lambda *data: retrieval_command(name)(*data)[
                "value"
            ],
            trec_name: trec_command(measure),
        },
        {
            "retrieval.AccuracyCalculator": lambda x, labels: updated_calculator(name)(x, labels).interval(
                replicates=50, groups=labels
            )[name],
            "retrieval.AccuracyCalculator, tensormetrics retrieval": lambda *data: estimate(
                retrieval_command(name, "--replicates", "50")(*data)
            ),
        },
        {trec_name: FILES},
    )


def tag_file_text(sentences: list[list[str]]) -> str:
    return "\n".join("".join(f"w {tag}\n" for tag in tags) for tags in sentences)


def ner_command(pred: list[list[str]], ref: list[list[str]]) -> float:
    return run_command({"p.bio": tag_file_text(pred), "r.bio": tag_file_text(ref)}, "ner", "p.bio", "r.bio")["scores"][
        "f1"
    ]["value"]


def association_command(*sets: Tensor) -> float:
    query, _ = as_query(2, sets)
    tokens = [token for names in (*query.target_sets, *query.attribute_sets) for token in names]
    rows = torch.cat(sets).tolist()
    vectors = "\n".join(" ".join([token, *map(repr, row)]) for token, row in zip(tokens, rows, strict=True)) + "\n"
    queries = json.dumps([{"target_sets": query.target_sets, "attribute_sets": query.attribute_sets}])
    files = {"vectors.txt": vectors, "queries.json": queries}
    answer = run_command(files, "association", "vectors.txt", "--queries", "queries.json", "--metric", "weat")
    (row,) = answer["metrics"]["weat"].values()
    return row["score"]


def random_battles(generator: Generator) -> tuple[Tensor, ...]:
    first = torch.randint(4, (80,), generator=generator)
    return (
        first,
        (first + torch.randint(1, 4, (80,), generator=generator)) % 4,
        torch.randint(3, (80,), generator=generator).double() / 2,
    )


def ratings_of_battles(*battles: Tensor) -> Tensor:
    metric = uncertainty.Ratings(4)
    metric.update(*battles)
    return torch.stack([*metric.compute().values()])


def ratings_command(*battles: Tensor) -> Tensor:
    rows = zip(*(tensor.tolist() for tensor in battles), strict=True)
    text = "\n".join(["a,b,outcome", *(",".join(map(str, row)) for row in rows)])
    models = run_command({"battles.csv": text}, "ratings", "battles.csv", "--replicates", "2")["models"]
    return torch.tensor([models[str(i)]["value"] for i in range(4)])


MATRIX = torch.tensor([[8, 2, 0], [1, 9, 0], [3, 0, 5]])


def posterior_command(matrix: Tensor) -> float:
    text = "\n".join(",".join(map(str, row)) for row in matrix.tolist()) + "\n"
    answer = run_command({"a.csv": text}, "posterior", "a.csv", "--metric", "f1@macro")
    return answer["scores"]["f1@macro"]["a"]["value"]


TAGS: dict[str, Any] = {name: make for name, make in SENTENCES.items() if name in ("ordinary", "no tag", "all right")}
TAGS["nothing predicted"] = SENTENCES["nothing predicted"]
QUANTITIES = {
    "precision@1 of files": rank_quantity("precision_at_1", "P_1"),
    "MAP@5 of files": rank_quantity("mean_average_precision_at_5", "map_cut_5"),
    "entity F1 of files": Quantity(
        TAGS,
        {
            "structured.SpanScores": lambda *data: updated_tags(*data).compute()["f1"],
            "structured.SpanScores, tensormetrics ner": ner_command,
        },
    ),
    "WEAT of files": Quantity(
        {"ordinary": random_sets("xyab")},
        {
            "association.weat": association.functional.weat,
            "association.WEAT, tensormetrics association": association_command,
        },
        rtol=1e-6,  # files hold float32
    ),
    "ratings of files": Quantity(
        {"ordinary": random_battles},
        {"uncertainty.Ratings": ratings_of_battles, "uncertainty.Ratings, tensormetrics ratings": ratings_command},
        rtol=1e-6,
    ),
    "macro F1 of files": Quantity(
        {"ordinary": lambda _: (MATRIX,)},
        {
            "posterior.get_metric": posterior.get_metric("f1@macro"),
            "posterior.Study, tensormetrics posterior": posterior_command,
        },
        rtol=1e-6,
    ),
}
