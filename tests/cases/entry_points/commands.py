"""Numbers that the command line prints, beside those of the library."""

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

from . import retrieval as of_retrieval
from .association import as_query, sets
from .quantity import Number, fed
from .structured import SENTENCES, updated_tags


def answered(files: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """The JSON of a command on files, which arguments name; ValueError where it refuses them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            if isinstance(content, str):
                (Path(folder) / name).write_text(content)
            else:
                np.save(Path(folder) / name, content)
        paths = [str(Path(folder) / word) if word in files else word for word in arguments]
        result = CliRunner().invoke(main, [*paths, "--json", str(Path(folder) / "o.json")])
        if result.exit_code:
            raise ValueError(result.output)
        return json.loads((Path(folder) / "o.json").read_text())


def of_embeddings(name: str, *options: str) -> Any:
    def value(x: Tensor, labels: Tensor) -> Any:
        files = {"x.npy": x.numpy(), "labels.npy": labels.numpy()}
        return answered(files, "retrieval", "x.npy", "labels.npy", "--metric", name, *options)["metrics"][name]

    return value


def estimate(found: dict[str, float]) -> uncertainty.Estimate:
    return uncertainty.Estimate(*(torch.tensor(found[end], dtype=torch.float64) for end in ("value", "low", "high")))


def of_calculator(name: str) -> Any:
    return lambda *data: fed(retrieval.AccuracyCalculator([name]), *data)


def trec_files(x: Tensor, labels: Tensor) -> dict[str, str]:
    order, relevant, _ = of_retrieval.order_of(x, labels)
    run, qrels = [], []
    for query, (row, good) in enumerate(zip(order.tolist(), relevant.tolist(), strict=True)):
        run += [f"q{query} Q0 d{j} {place} {-place} t" for place, j in enumerate(row)]
        qrels += [f"q{query} 0 d{j} {int(is_good)}" for j, is_good in zip(row, good, strict=True) if any(good)]
    return {"run.txt": "\n".join(run), "qrels.txt": "\n".join(qrels)}


def of_lists(measure: str) -> Any:
    return lambda *data: answered(trec_files(*data), "trec", "run.txt", "qrels.txt", "--metric", measure)["metrics"][
        measure
    ]["value"]


EMBEDDINGS = {name: of_retrieval.EMBEDDINGS[name] for name in ("ordinary", "ties", "lone queries", "integers", "half")}
EMBEDDINGS |= {name: of_retrieval.EMBEDDINGS[name] for name in ("labels of another length", "infinite")}
FILES = dict.fromkeys(("labels of another length", "infinite"), "its files hold lists of documents")


def of_ranks(name: str, measure: str) -> Number:
    lists = f"retrieval.evaluate_run, tensormetrics trec {measure}"
    return Number(
        EMBEDDINGS,
        {
            "retrieval.AccuracyCalculator": lambda *data: of_calculator(name)(*data).compute()[name],
            "retrieval.AccuracyCalculator, tensormetrics retrieval": lambda *data: of_embeddings(name)(*data)["value"],
            lists: of_lists(measure),
        },
        {
            "retrieval.AccuracyCalculator": lambda x, labels: of_calculator(name)(x, labels).interval(
                replicates=50, groups=labels
            )[name],
            "retrieval.AccuracyCalculator, tensormetrics retrieval": lambda *data: estimate(
                of_embeddings(name, "--replicates", "50")(*data)
            ),
        },
        {lists: FILES},
    )


def tagged(side: list[list[str]]) -> str:
    return "\n".join("".join(f"w {tag}\n" for tag in tags) for tags in side)


def named_entities(pred: list[list[str]], ref: list[list[str]]) -> float:
    return answered({"p.bio": tagged(pred), "r.bio": tagged(ref)}, "ner", "p.bio", "r.bio")["scores"]["f1"]["value"]


def weat_of_files(*given: Tensor) -> float:
    query, _ = as_query(2, given)
    words = [word for names in (*query.target_sets, *query.attribute_sets) for word in names]
    rows = torch.cat(given).tolist()
    vectors = "\n".join(" ".join([word, *map(repr, row)]) for word, row in zip(words, rows, strict=True)) + "\n"
    queries = json.dumps([{"target_sets": query.target_sets, "attribute_sets": query.attribute_sets}])
    files = {"vectors.txt": vectors, "queries.json": queries}
    answer = answered(files, "association", "vectors.txt", "--queries", "queries.json", "--metric", "weat")
    (row,) = answer["metrics"]["weat"].values()
    return row["score"]


def judged(generator: Generator) -> tuple[Tensor, ...]:
    first = torch.randint(4, (80,), generator=generator)
    return (
        first,
        (first + torch.randint(1, 4, (80,), generator=generator)) % 4,
        torch.randint(3, (80,), generator=generator).double() / 2,
    )


def rated(*battles: Tensor) -> Tensor:
    metric = uncertainty.Ratings(4)
    metric.update(*battles)
    return torch.stack([*metric.compute().values()])


def rated_files(*battles: Tensor) -> Tensor:
    rows = zip(*(side.tolist() for side in battles), strict=True)
    text = "\n".join(["a,b,outcome", *(",".join(map(str, row)) for row in rows)])
    models = answered({"battles.csv": text}, "ratings", "battles.csv", "--replicates", "2")["models"]
    return torch.tensor([models[str(i)]["value"] for i in range(4)])


MATRIX = torch.tensor([[8, 2, 0], [1, 9, 0], [3, 0, 5]])


def of_matrix(matrix: Tensor) -> float:
    text = "\n".join(",".join(map(str, row)) for row in matrix.tolist()) + "\n"
    answer = answered({"a.csv": text}, "posterior", "a.csv", "--metric", "f1@macro")
    return answer["scores"]["f1@macro"]["summaries"][0]["Observed"]


TAGS: dict[str, Any] = {name: make for name, make in SENTENCES.items() if name in ("ordinary", "no tag", "all right")}
TAGS["nothing predicted"] = SENTENCES["nothing predicted"]
NUMBERS = {
    "precision@1 of files": of_ranks("precision_at_1", "P_1"),
    "MAP@5 of files": of_ranks("mean_average_precision_at_5", "map_cut_5"),
    "entity F1 of files": Number(
        TAGS,
        {
            "structured.SpanScores": lambda *data: updated_tags(*data).compute()["f1"],
            "structured.SpanScores, tensormetrics ner": named_entities,
        },
    ),
    "WEAT of files": Number(
        {"ordinary": sets("xyab")},
        {"association.weat": association.weat, "association.WEAT, tensormetrics association": weat_of_files},
        rtol=1e-6,  # files hold float32
    ),
    "ratings of files": Number(
        {"ordinary": judged},
        {"uncertainty.Ratings": rated, "uncertainty.Ratings, tensormetrics ratings": rated_files},
        rtol=1e-6,
    ),
    "macro F1 of files": Number(
        {"ordinary": lambda _: (MATRIX,)},
        {
            "posterior.get_metric": posterior.get_metric("f1@macro"),
            "posterior.Study, tensormetrics posterior": of_matrix,
        },
        rtol=1e-6,
    ),
}
