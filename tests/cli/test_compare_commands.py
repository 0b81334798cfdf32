"""Every command has the intervals of the library by default, and with `--compare FILE` its comparisons."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from running import answer, run

from tensormetrics import Comparison, Estimate, Table, compare, interval
from tensormetrics.__main__ import COMMANDS
from tensormetrics.association import WEAT, Query, WordEmbeddingModel
from tensormetrics.posterior import Study
from tensormetrics.retrieval import AccuracyCalculator, evaluate_run
from tensormetrics.structured import (
    CorefScores,
    Family,
    Smatch,
    SpanScores,
    derive,
    evaluate,
    macro_average,
    micro_average,
    read_conll_coref,
    read_penman,
)
from tensormetrics.uncertainty import Ratings, read_scores

SENTENCES, QUERIES = 30, 8
SCHEMA = "from dataclasses import dataclass\n\n@dataclass\nclass Bag:\n    words: list[str]\n"
TREC = "trec dense.txt qrels.txt --metric map --metric P_5 --metric num_rel --compare bm25.txt"
RETRIEVAL = (
    "retrieval large.npy labels.npy --metric precision_at_1 --metric r_precision --metric AMI"
    " --reference large-docs.npy --reference-labels labels.npy"
)
ASSOCIATION = "association glove.txt --queries queries.json --compare word2vec.txt"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_runs():
    draw = random.Random(0)
    for name, quality in ("dense", 0.6), ("bm25", 0.2):
        lines = [f"q{q} Q0 d{d} 0 {quality * (d % 2) + draw.random()} t\n" for q in range(25) for d in range(10)]
        Path(f"{name}.txt").write_text("".join(lines))
    Path("qrels.txt").write_text("".join(f"q{q} 0 d{d} {d % 2}\n" for q in range(25) for d in range(10)))
    return [evaluate_run(f"{name}.txt", "qrels.txt", ["map", "P_5", "num_rel"]) for name in ("dense", "bm25")]


def write_embeddings():
    generator, labels = np.random.default_rng(0), np.arange(96) % 8
    np.save("labels.npy", labels)
    scored = []
    for name, noise in (("large", 0.5), ("small", 1.0)):
        query, documents = (np.eye(8)[labels] + noise * generator.standard_normal((96, 8)) for _ in range(2))
        np.save(f"{name}.npy", query)
        np.save(f"{name}-docs.npy", documents)
        scored.append(AccuracyCalculator(("precision_at_1", "r_precision", "AMI")))
        scored[-1].get_accuracy(query, labels, documents, labels, groups=labels)
    return scored


def write_structures():
    """Write references and the answers of two models; the first model makes fewer errors."""
    draw = random.Random(0)
    tags = [[draw.choice(("O", "O", "B-PER", "B-LOC")) for _ in range(6)] for _ in range(SENTENCES)]
    noise = {"r": 0, "p": 0.1, "q": 0.4}
    for name, error_rate in noise.items():
        wrong = [[draw.choice(("O", "B-PER")) if draw.random() < error_rate else tag for tag in row] for row in tags]
        Path(f"{name}.bio").write_text("\n\n".join("\n".join(f"w {tag}" for tag in row) for row in wrong) + "\n")
        Path(f"{name}.jsonl").write_text("".join(json.dumps({"words": row}) + "\n" for row in wrong))
        clusters = [[f"({'OPL'.index(tag[-1]) if tag[-1] in 'OPL' else 1})" for tag in row] for row in wrong]
        documents = ["".join(f"w {mention}\n" for mention in row) for row in clusters]
        Path(f"{name}.conll").write_text(
            "".join(f"#begin document (d{i}); part 000\n{text}#end document\n" for i, text in enumerate(documents))
        )
        graphs = [f"(a / {row[0]} :ARG0 (b / {row[1]}) :ARG1 (c / {row[2]}))" for row in wrong]
        Path(f"{name}.amr").write_text("\n\n".join(graphs) + "\n")
    Path("bag.py").write_text(SCHEMA)


def tags(text):
    return [[line.split()[1] for line in block.splitlines()] for block in text.split("\n\n")]


def documents(text):
    return [clusters for _, clusters in read_conll_coref(text.splitlines())]


def graphs(text):
    return [*map(read_penman, text.split("\n\n"))]


def values(text):
    return [*map(json.loads, text.splitlines())]


def structures(suffix, read, make, update="update"):
    """Return a metric of each model's structures."""
    write_structures()
    metrics = [make() for _ in range(2)]
    for metric, name in zip(metrics, "pq", strict=True):
        getattr(metric, update)(*(read(Path(f"{file}.{suffix}").read_text()) for file in (name, "r")))
    return metrics


def objects():
    exec(SCHEMA, namespace := {"__name__": "bag"})
    bag, names = namespace["Bag"], ["precision", "recall", "f1"]
    averages = {"micro": micro_average(names), "macro": macro_average(names)}
    return structures("jsonl", lambda text: [bag(**x) for x in values(text)], lambda: Family(derive(bag), averages))


def write_vectors():
    """Write vectors of two models, and queries without shared words."""
    words = [[f"{name}{i}{query}" for i in range(3)] for query in range(QUERIES) for name in "xyab"]
    queries = [
        {"target_sets": words[i : i + 2], "attribute_sets": words[i + 2 : i + 4],
         "target_sets_names": [f"x{i}", "y"], "attribute_sets_names": ["a", "b"]}
        for i in range(0, len(words), 4)
    ]  # fmt: skip
    Path("queries.json").write_text(json.dumps(queries))
    models = []
    flat = sum(words, [])
    for seed, name in enumerate(("glove", "word2vec")):
        rows = np.random.default_rng(seed).normal(size=(len(flat), 5)).astype(np.float32)
        lines = [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(flat, rows, strict=True)]
        Path(f"{name}.txt").write_text("\n".join(lines) + "\n")
        models.append(WordEmbeddingModel.from_numpy(rows, flat))
    return [Query(**query) for query in queries], models


def associations():
    queries, models = write_vectors()
    metrics = WEAT(), WEAT()
    for metric, model in zip(metrics, models, strict=True):
        for query in queries:
            sets = [torch.from_numpy(np.stack([model[word] for word in words])).double()
                    for words in (*query.target_sets, *query.attribute_sets)]  # fmt: skip
            metric.update(*sets, ids=[query.query_name])
    return [WEAT(replicates=1000).run_query(query, models[0]) for query in queries], compare(*metrics)


def study():
    matrices = {"a": [[90, 10], [12, 88]], "b": [[95, 5], [10, 90]]}
    study = Study(0, metrics={"acc": {}, "tpr": {}})
    for name, matrix in matrices.items():
        study.add_experiment(name, matrix)
        Path(f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in matrix))
    return study.table(), [study.compare("acc"), study.compare("tpr", 0), study.compare("tpr", 1)]


def files():
    for name, step in ("a", 7), ("b", 3):
        lines = "\n".join(f"q{i},{int(i % step > 0)}" for i in range(60))
        Path(f"{name}.csv").write_text(f"id,right\n{lines}")
    models = {name: read_scores(name, "right") for name in ("a.csv", "b.csv")}
    return {name: interval(scores) for name, scores in models.items()}, compare(*models.values())


def ratings():
    winners, pairs = (1, 0, 0.5, 1), [("opus", "gpt"), ("gpt", "llama"), ("llama", "opus")]
    a, b = zip(*(pairs[i // 2 % 3][:: 1 - 2 * (i % 2)] for i in range(60)), strict=True)
    outcomes = [winners[i * i % 5 % 4] for i in range(60)]
    Path("battles.csv").write_text("a,b,outcome\n" + "\n".join(map("{},{},{}".format, a, b, outcomes)))
    metric = Ratings()
    metric.update(a, b, outcomes)
    return metric.table().select("rating"), metric.compare()


def evaluations():
    write_structures()
    preds, others, refs = (values(Path(f"{name}.jsonl").read_text()) for name in "pqr")
    report = evaluate(preds, refs)
    return report.table(), report.compare(evaluate(others, refs))


def entities():
    return structures("bio", tags, lambda: SpanScores(labels=["LOC", "PER"]), "update_tags")


def clusters():
    return structures("conll", documents, CorefScores, "update_clusters")


LIBRARY = {  # command -> its words, and two models of the library, or the estimates of one and the comparisons of two
    "retrieval": (f"{RETRIEVAL} --compare small.npy --compare-reference small-docs.npy", write_embeddings),
    "trec": (TREC, write_runs),
    "association": (ASSOCIATION, associations),
    "posterior": ("posterior a.csv b.csv --compare --metric acc --metric tpr", study),
    "json": ("json p.jsonl r.jsonl --compare q.jsonl", evaluations),
    "structured": ("structured p.jsonl r.jsonl --schema bag.py:Bag --compare q.jsonl", objects),
    "coref": ("coref p.conll r.conll --compare q.conll", clusters),
    "ner": ("ner p.bio r.bio --compare q.bio", entities),
    "amr": ("amr p.amr r.amr --compare q.amr", lambda: structures("amr", graphs, Smatch)),
    "scores": ("scores a.csv b.csv --metric right", files),
    "ratings": ("ratings battles.csv --pairs", ratings),
}


def cells_of(kind, results):
    """Return the numbers of all results of a kind in tables, mappings and lists of these, in order."""
    if isinstance(results, kind):
        names = ("difference", "low", "high", "p_value") if kind is Comparison else ("value", "low", "high")
        return [[float(getattr(results, name)) for name in names]]
    cells = [cell for row in results.cells for cell in row] if isinstance(results, Table) else results
    cells = cells.values() if isinstance(cells, dict) else cells if isinstance(cells, list | tuple) else ()
    return [numbers for cell in cells for numbers in cells_of(kind, cell)]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("info", "demo")])
def test_command_has_intervals_and_comparisons_of_library_by_default(command):
    if command == "amr":
        pytest.importorskip("penman")
    words, make = LIBRARY[command]
    found = make()
    if isinstance(found, list):
        found = interval(found[0]), compare(*found)
    output = [Table.from_json(json.dumps(table)) for table in answer(words)["tables"]]
    for kind, expected in zip((Estimate, Comparison), found, strict=True):
        expected, actual = cells_of(kind, expected), cells_of(kind, output)
        assert expected and actual[: len(expected)] == [pytest.approx(row, rel=1e-6, nan_ok=True) for row in expected]


class TestTrec:
    def test_comparison_of_other_queries_is_refused_and_names_the_files(self):
        write_runs()
        lines = [line for line in Path("bm25.txt").read_text().splitlines() if not line.startswith("q7 ")]
        Path("bm25.txt").write_text("\n".join(lines))
        result = run(TREC)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("tensormetrics: dense.txt and bm25.txt: their items differ; ")
        assert run(TREC, "--option", "complete=true").exit_code == 0

    @pytest.mark.parametrize("name", ["dense.txt", "p"])
    def test_comparison_of_files_with_one_name_has_distinct_columns(self, folder, name):
        write_runs()
        (folder / "old").mkdir()
        Path("bm25.txt").rename(folder / "old" / name)
        columns = list(
            Table.from_json(json.dumps(answer(TREC.replace("bm25.txt", f"old/{name}"))["tables"][1])).columns
        )
        assert columns[:2] == ["a: dense.txt", f"b: {name}"]


def test_structured_comparison_of_other_lengths_is_refused_and_names_the_file():
    write_structures()
    Path("q.bio").write_text(Path("q.bio").read_text().partition("\n\n")[2])
    result = run("ner p.bio r.bio --compare q.bio")
    message = f"q.bio: number of sentences is {SENTENCES - 1}, but that of r.bio is {SENTENCES}"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"tensormetrics: {message}\n")


class TestAssociation:
    def test_queries_without_a_score_of_one_model_are_dropped_and_named(self):
        write_vectors()
        lines = Path("word2vec.txt").read_text().splitlines()
        Path("word2vec.txt").write_text(
            "\n".join(line for line in lines if line.split()[0] not in ("x01", "x11")) + "\n"
        )
        result = run(ASSOCIATION, "--json", "o.json")
        assert "tensormetrics: word2vec.txt: queries without a score: 'x4' lost 2 of 3 words" in result.stderr
        assert json.loads(Path("o.json").read_text())["comparison"]["weat"]["items"] == QUERIES - 1
        Path("word2vec.txt").write_text("\n".join(line for line in lines if line.startswith("x")) + "\n")
        result = run(ASSOCIATION)
        assert result.exit_code == 2
        assert "--compare: weat has no query with a score by both models" in result.stderr
