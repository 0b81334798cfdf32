"""`--compare FILE` of every command, against `tensormetrics.compare`."""

import json
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from running import answer, run

from tensormetrics import Table, compare
from tensormetrics.association import WEAT, Query, WordEmbeddingModel
from tensormetrics.retrieval import AccuracyCalculator, evaluate_run
from tensormetrics.structured import (
    CorefScores,
    Family,
    Smatch,
    SpanScores,
    derive,
    macro_average,
    micro_average,
)

SENTENCES = 30


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_equal(output, expected):
    """Check that comparisons in JSON equal those of the library, by name."""
    assert list(output) == list(expected)
    for name, comparison in expected.items():
        for field in ("difference", "low", "high", "p_value", "p_better"):
            assert output[name][field] == pytest.approx(float(getattr(comparison, field)), rel=1e-9), (name, field)
        for model in ("a", "b"):
            assert output[name][model]["value"] == pytest.approx(float(getattr(comparison, model)), rel=1e-9)


def write_runs():
    draw = random.Random(0)
    for name, quality in ("dense", 0.6), ("bm25", 0.2):
        lines = [f"q{q} Q0 d{d} 0 {quality * (d % 2) + draw.random()} t\n" for q in range(25) for d in range(10)]
        Path(f"{name}.txt").write_text("".join(lines))
    Path("qrels.txt").write_text("".join(f"q{q} 0 d{d} {d % 2}\n" for q in range(25) for d in range(10)))
    return [evaluate_run(f"{name}.txt", "qrels.txt", ["map", "P_5", "num_rel"]) for name in ("dense", "bm25")]


TREC = "trec dense.txt qrels.txt --metric map --metric P_5 --metric num_rel --compare bm25.txt"


class TestTrec:
    def test_comparison_equals_compare_of_metrics(self):
        scores = write_runs()
        output = answer(TREC)
        check_equal(output["comparison"], compare(*scores))
        assert output["options"]["replicates"] == 1000 and "|replicates:1000|" in output["signature"]
        assert "low" in output["metrics"]["map"] and output["files"]["compare"] == "bm25.txt"
        output = answer(TREC, "--rope", 0.1, "--replicates", 200, "--confidence", 0.8)
        expected = compare(*scores, rope=0.1, replicates=200, confidence=0.8)
        check_equal(output["comparison"], expected)
        assert output["comparison"]["map"]["p_rope"] == float(expected["map"].p_rope)

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


def write_embeddings():
    generator = np.random.default_rng(0)
    labels = np.arange(96) % 8
    np.save("labels.npy", labels)
    embeddings = {name: np.eye(8)[labels] + noise * generator.standard_normal((96, 8)) for name, noise in
             (("large", 0.5), ("small", 1.0), ("large-docs", 0.5), ("small-docs", 1.0))}  # fmt: skip
    for name, rows in embeddings.items():
        np.save(f"{name}.npy", rows)
    return labels, embeddings


RETRIEVAL = (
    "retrieval large.npy labels.npy --metric precision_at_1 --metric r_precision --metric AMI --compare small.npy"
)


class TestRetrieval:
    def test_comparison_equals_compare_of_metrics(self):
        labels, embeddings = write_embeddings()
        scored = [AccuracyCalculator(("precision_at_1", "r_precision", "AMI")) for _ in range(2)]
        for calculator, name in zip(scored, ("large", "small"), strict=True):
            calculator.get_accuracy(embeddings[name], labels, groups=labels)
        output = answer(RETRIEVAL)
        check_equal(output["comparison"], compare(*scored))
        assert output["comparison"]["r_precision"]["groups"] == 8
        pairs = np.arange(96) // 2
        for calculator, name in zip(scored, ("large", "small"), strict=True):
            calculator.get_accuracy(embeddings[name], labels, embeddings[f"{name}-docs"], labels, groups=pairs)
        Path("groups.txt").write_text("\n".join(map(str, pairs)))
        references = "--reference large-docs.npy --reference-labels labels.npy --compare-reference small-docs.npy"
        output = answer(f"{RETRIEVAL} {references} --groups groups.txt")
        check_equal(output["comparison"], compare(*scored))
        assert output["files"]["compare_reference"] == "small-docs.npy"


SCHEMA = "from dataclasses import dataclass\n\n@dataclass\nclass Bag:\n    words: list[str]\n"


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


def score_files(metric, method, suffix, name, **options):
    scores = metric(replicates=1000, **options)
    getattr(scores, method)(f"{name}.{suffix}", f"r.{suffix}")
    return scores


def score_objects(name):
    exec(SCHEMA, namespace := {"__name__": "bag"})
    names = ["precision", "recall", "f1"]
    averages = {"micro": micro_average(names), "macro": macro_average(names)}
    texts = [Path(f"{file}.jsonl").read_text() for file in (name, "r")]
    family, bag = Family(derive(namespace["Bag"]), averages, replicates=1000), namespace["Bag"]
    family.update(*([bag(**json.loads(line)) for line in text.splitlines()] for text in texts))
    return family


@pytest.mark.parametrize(
    ("command", "suffix", "scored"),
    [
        ("ner", "bio", partial(score_files, SpanScores, "update_tags", "bio", labels=["LOC", "PER"])),
        ("coref", "conll", partial(score_files, CorefScores, "update_clusters", "conll")),
        ("amr", "amr", partial(score_files, Smatch, "update", "amr")),
        ("structured --schema bag.py:Bag", "jsonl", score_objects),
    ],
)
def test_structured_comparison_equals_compare_of_metrics(command, suffix, scored):
    if command == "amr":
        pytest.importorskip("penman")
    write_structures()
    output = answer(f"{command} p.{suffix} r.{suffix} --compare q.{suffix} --rope 0.02")
    check_equal(output["comparison"], compare(scored("p"), scored("q"), rope=0.02))
    table = run(f"{command} p.{suffix} r.{suffix} --compare q.{suffix} --format csv").stdout.split("\n\n")[1]
    assert table.startswith(f"score,p.{suffix},p.{suffix}/low,p.{suffix}/high,q.{suffix},")


QUERIES = 8


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


ASSOCIATION = "association glove.txt --queries queries.json --compare word2vec.txt"


class TestAssociation:
    def test_comparison_equals_compare_of_metrics(self):
        queries, models = write_vectors()
        metrics = WEAT(replicates=1000), WEAT(replicates=1000)
        for metric, model in zip(metrics, models, strict=True):
            for query in queries:
                sets = [torch.from_numpy(np.stack([model[word] for word in words])).double()
                        for words in (*query.target_sets, *query.attribute_sets)]  # fmt: skip
                metric.update(*sets, ids=[query.query_name])
        output = answer(ASSOCIATION)
        (result,) = output["comparison"].values()
        expected = compare(*metrics)
        assert result["difference"] == pytest.approx(float(expected.difference), rel=1e-6)
        assert result["p_value"] == float(expected.p_value) and result["items"] == QUERIES
        scores = [row["score"] for row in output["metrics"]["weat"].values()]
        assert result["a"]["value"] == pytest.approx(np.mean(scores))
        assert "mean over queries  glove.txt " in run(ASSOCIATION).stdout and "verdict" not in run(ASSOCIATION).stdout

    def test_comparison_of_ceat_resamples_queries(self):
        queries, models = write_vectors()
        output = answer(ASSOCIATION, "--metric", "ceat", "--metric", "weat", "--rope", 0.1)
        assert list(output["comparison"]) == ["ceat", "weat"] and output["comparison"]["ceat"]["p_rope"] is not None
        assert output["comparison"]["ceat"]["items"] == QUERIES
        row = output["metrics"]["ceat"]["x0 and y wrt a and b"]
        assert row["low"] < row["score"] < row["high"]

    def test_queries_without_a_score_of_one_model_are_dropped_and_named(self):
        write_vectors()
        lines = Path("word2vec.txt").read_text().splitlines()
        Path("word2vec.txt").write_text(
            "\n".join(line for line in lines if line.split()[0] not in ("x01", "x11")) + "\n"
        )
        result = run(ASSOCIATION, "--json", "o.json")
        assert "tensormetrics: word2vec.txt: x4 and y wrt a and b: 'x4' lost 2 of 3 words" in result.stderr
        assert json.loads(Path("o.json").read_text())["comparison"]["weat"]["items"] == QUERIES - 1
        Path("word2vec.txt").write_text("\n".join(line for line in lines if line.startswith("x")) + "\n")
        result = run(ASSOCIATION)
        assert result.exit_code == 2
        assert "--compare: weat has no query with a score by both models" in result.stderr
