"""`tensormetrics association` on random vectors."""

import gzip
import json
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import running
import torch
from fasttext_files import fasttext_file
from safetensors.torch import save_file

from tensormetrics._cli.commands.association import METRICS, TESTED
from tensormetrics.association import RND, WEAT, Query, WordEmbeddingModel, load_weat, run_queries

run = partial(running.run, "association")
succeed = partial(running.succeed, "association")

QUERY = {
    "target_sets": [["he", "him", "his"], ["she", "her", "hers"]],
    "attribute_sets": [["work", "wage"], ["home", "care"]],
    "target_sets_names": ["male", "female"],
    "attribute_sets_names": ["career", "family"],
}
WORDS = [word for sets in (QUERY["target_sets"], QUERY["attribute_sets"]) for s in sets for word in s] + ["tree"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 5))
    lines = [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(WORDS, rows, strict=True)]
    Path("glove.txt").write_text("\n".join(lines) + "\n")
    Path("vectors.txt").write_text(f"{len(WORDS)} 5\n" + "\n".join(lines) + "\n")
    for name in ("vectors.txt", "glove.txt"):
        Path(f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    Path("queries.json").write_text(json.dumps([QUERY]))
    return WordEmbeddingModel.from_numpy(rows, WORDS)


@pytest.mark.parametrize("file", ["vectors.txt", "vectors.txt.gz", "glove.txt", "glove.txt.gz"])
def test_association_scores_equal_run_query(model, file):
    options = "--queries queries.json --metric weat --metric rnd --p-value exact --json o.json --plot o.png"
    running.succeed(f"association {file} {options}")
    answer = json.loads(Path("o.json").read_text())["metrics"]
    expected = WEAT(p_value=True).run_query(Query(**QUERY), model).details
    (row,) = answer["weat"].values()
    assert row["score"] == pytest.approx(float(expected["weat"]), rel=1e-6)
    assert (
        row["effect size"] == pytest.approx(float(expected["effect_size"]), rel=1e-6)
        and row["p"] == expected["p_value"]
    )
    assert list(answer["rnd"]) == ["male and female wrt career", "male and female wrt family"]
    single = Query(QUERY["target_sets"], QUERY["attribute_sets"][1:], ["male", "female"], ["family"])
    value = float(RND().run_query(single, model))
    assert answer["rnd"]["male and female wrt family"]["score"] == pytest.approx(value, rel=1e-6)
    assert Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_association_of_several_files_is_one_table_with_lost_words_in_one_line(model):
    lines = Path("glove.txt").read_text().splitlines()
    Path("less.txt").write_text("\n".join(line for line in lines if line.split()[0] not in ("he", "him")))
    result = succeed("glove.txt", "less.txt", "--queries", "queries.json", "--metric", "weat", "--json", "o.json")
    output = json.loads(Path("o.json").read_text())
    (table,) = output["tables"]
    assert [x["name"] for x in table["columns"]] == ["glove.txt", "effect size of glove.txt", "less.txt",
                                                     "effect size of less.txt"]  # fmt: skip
    (row,) = output["metrics"]["weat"]["glove.txt"].values()
    assert table["rows"][0]["cells"]["glove.txt"]["value"] == row["score"]
    line = "tensormetrics: less.txt: queries without a score: 'male' lost 2 of 3 words (0.667 > 0.2)\n"
    assert result.stderr == f"wrote o.json\n{line}"
    refused = run("glove.txt", "less.txt", "--compare", "less.txt")
    assert refused.exit_code == 2 and "--compare: got it with several VECTORS, wanted one" in refused.stderr


def test_association_correction_marks_significant_queries(model):
    rows = [{**QUERY, "target_sets_names": [f"m{i}", "f"]} for i in range(3)]
    Path("three.json").write_text(json.dumps(rows))
    for correction in ("max-t", "holm", "bh"):
        options = f"--queries three.json --p-value approximate --correction {correction} --json o.json --plot o.svg"
        result = running.succeed(f"association glove.txt {options}")
        answer = json.loads(Path("o.json").read_text())
        queries = [Query(**row) for row in rows]
        tested = WEAT(p_value=True, method="approximate")
        expected = run_queries(tested, queries, [model], correction=correction)
        p_values = [row[f"p ({correction})"] for row in answer["metrics"]["weat"].values()]
        assert answer["options"]["correction"] == correction and p_values == list(expected.cells[0])
        assert all(row["survives"] == ("yes" if p < 0.05 else "no")
                   for row, p in zip(answer["metrics"]["weat"].values(), p_values, strict=True))  # fmt: skip
        assert f"p ({correction})" in result.output and "survives" in result.output
        assert f"p ({correction}) of " in "".join(re.findall(r"<!-- (.*?) -->", Path("o.svg").read_text()))


def test_association_reads_every_format_of_vectors(model):
    rows = model.vectors.float().numpy()
    Path("words.txt").write_text("\n".join(WORDS))
    np.savez("v.npz", rows=rows, words=np.array(WORDS))
    save_file({"rows": torch.from_numpy(rows)}, "v.safetensors")
    Path("v.bin").write_bytes(fasttext_file(WORDS, rows, 0, 0, 0))
    with zipfile.ZipFile("v.zip", "w") as archive:
        for name in ("vectors.txt", "glove.txt"):
            archive.write(name, name)
    answers = []
    with_words = "v.npz --words words.txt", "v.safetensors --words words.txt"
    for words in ("glove.txt", "v.npz", *with_words, "v.bin", "v.zip --member glove.txt"):
        (row,) = running.answer(f"association {words} --queries queries.json")["metrics"]["weat"].values()
        answers.append(row["score"])
    assert answers == pytest.approx([answers[0]] * 6, rel=1e-6) and answers[0]
    for words, line in {
        "v.zip": "--member: got no name, wanted one of those in v.zip: vectors.txt, glove.txt\n",
        "v.safetensors": "v.safetensors: this has no words; give them by --words\n",
        "v.bin --words words.txt": "--words: got words.txt for v.bin, wanted a .npz or .safetensors file\n",
        "v.bin --member x": "--member: got x for v.bin, which is no .zip\n",
        "v.npz --words glove.txt.gz": "",
        "v.npz --words nowhere": "nowhere: there is no such file\n",
    }.items():
        result = running.run(f"association {words} --queries queries.json")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
        assert result.stderr == f"tensormetrics: {line}" or not line


def test_association_without_queries_runs_published_tests_and_reports_missing_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sets = load_weat()
    words = [*sets["flowers"], *sets["insects"], *sets["pleasant_5"], *sets["unpleasant_5a"]]
    rows = np.random.default_rng(0).normal(size=(len(words), 4))
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True)]
    Path("v.txt").write_text(f"{len(words)} 4\n" + "\n".join(lines))
    result = succeed("v.txt", "--json", "o.json")
    answer = json.loads(Path("o.json").read_text())["metrics"]["weat"]
    assert len(answer) == 10 and [row["score"] is not None for row in answer.values()] == [True] + 9 * [False]
    assert "'instruments' lost 25 of 25 words" in result.stderr


def test_association_repeated_words_are_reported_in_one_line(model):
    Path("twice.txt").write_text(Path("glove.txt").read_text() + "he 1 2 3 4 5\n")
    result = run("twice.txt", "--queries", "queries.json")
    assert result.exit_code == 0
    assert result.stderr == "tensormetrics: twice.txt: 1 rows repeat a word and are left out: 'he'\n"


def test_association_scores_every_metric(model):
    assert {"weat", "ceat", "same", "directbias"} <= METRICS.keys() and "examplemetric" not in METRICS
    assert {"weat", "ect", "ceat"} <= TESTED < METRICS.keys() and not {"scweat", "mac"} & TESTED
    options = [word for metric in METRICS for word in ("--metric", metric)]
    files = "vectors.txt", "--queries", "queries.json"
    answer = running.answer("association", *files, *options)["metrics"]
    assert sorted(answer) == sorted(METRICS)
    for name, rows in answer.items():
        assert all(row["score"] is not None and row["reason"] is None for row in rows.values()), name
    query = Query(QUERY["target_sets"][:1], QUERY["attribute_sets"], ["male"], ["career", "family"])
    for name in ("same", "directbias"):
        expected = float(METRICS[name]().run_query(query, model))
        assert answer[name][query.query_name]["score"] == pytest.approx(expected, rel=1e-6)
