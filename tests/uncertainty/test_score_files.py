"""Reading of logs and tables of scores in the formats of evaluation harnesses."""

import json
import math

import pytest
from golden import golden

from tensormetrics import compare, interval
from tensormetrics.uncertainty import read_scores


def harness_row(doc_id, score, *, answer_filter="strict-match", digest=None, **fields):
    return {
        "doc_id": doc_id,
        "doc": {"question": f"{doc_id} + 1?", "subject": "law" if doc_id % 2 else "art"},
        "target": "3",
        "resps": [["3"]],
        "filtered_resps": ["3"],
        "filter": answer_filter,
        "metrics": ["exact_match"],
        "doc_hash": digest or f"hash of {doc_id}",
        "exact_match": score,
        **fields,
    }


def inspect_log(*samples):
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "arithmetic", "model": "mock/model"},
        "samples": [
            {"id": name, "epoch": epoch, "input": "1 + 1?", "metadata": {"subject": "law"}, "scores": scores, **more}
            for name, epoch, scores, more in samples
        ],
    }


@pytest.fixture
def file(tmp_path):
    def write(content, name="scores.txt"):
        path = tmp_path / name
        if isinstance(content, list):
            content = "\n".join(json.dumps(row) for row in content)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@golden("scores", "read_scores")
def test_read_scores_golden_files_equal_stored_scores(case, file):
    inputs, expected = case["inputs"], case["expected"]
    path = file(inputs["text"])
    options = {"metric": inputs["metric"], "filter": inputs.get("filter")}
    if "error" in expected:
        with pytest.raises(ValueError, match=f"^{expected['names']}: "):
            read_scores(path, **options)
        return
    scores = read_scores(path, **options)
    assert [name if isinstance(name, str) else int(name) for name in scores.ids] == expected["ids"]
    assert [None if math.isnan(x) else x for x in scores.scores.tolist()] == expected["scores"]
    if "repeats" in expected:
        assert scores.repeats.tolist() == expected["repeats"]


def test_read_scores_of_harness_logs(file):
    path = file([harness_row(2, 0.0), harness_row(0, 1.0), harness_row(1, True)], "samples_arithmetic.jsonl")
    scores = read_scores(path, groups="subject")
    assert scores.ids.tolist() == [2, 0, 1] and scores.scores.tolist() == [0, 1, 1]
    assert scores.groups == ["art", "art", "law"] and scores.name == "exact_match" and scores.bounds == (0, 1)
    older = [{k: v for k, v in harness_row(i, 1.0).items() if k not in ("metrics", "filter")} for i in range(3)]
    assert read_scores(file(older)).scores.tolist() == [1, 1, 1]
    both = [harness_row(i, i % 2, answer_filter=f) for i in range(3) for f in ("strict-match", "flexible-extract")]
    assert len(read_scores(file(both), filter="strict-match")) == 3


def test_compare_logs_of_other_documents_is_refused(file):
    a, b = (file([harness_row(i, 1.0, digest=digest) for i in range(4)], f"{digest}.jsonl") for digest in "ab")
    with pytest.raises(ValueError, match="^ids: 0 is another document in b, by its hash"):
        compare(a, b)


def test_read_scores_of_inspect_ai_logs(file):
    match = [{"match": {"value": grade}, "f1": {"value": {"mean": 0.25, "best": 1}}} for grade in ("C", "I", "P", "N")]
    log = inspect_log(
        ("q1", 1, match[0], {}),
        ("q1", 2, match[1], {}),
        ("q2", 1, match[2], {}),
        ("q2", 2, {}, {"error": {"message": "timeout"}}),
        ("q3", 1, match[3], {"error": {"message": "stopped after its answer"}}),
    )
    path = file(log)
    scores = read_scores(path, "match", groups="subject")
    assert scores.ids == ["q1", "q1", "q2", "q2", "q3"] and scores.repeats.tolist() == [1, 2, 1, 2, 1]
    assert scores.scores[[0, 1, 2, 4]].tolist() == [1, 0, 0.5, 0] and scores.groups == ["law"] * 5
    assert scores.bounds == (0, 1) and repr(scores) == "Scores(match=0.3333, items=3, missing=1)"
    with pytest.warns(UserWarning, match="^3 items"):
        estimate = interval(read_scores(path, "match"))
    assert float(estimate) == pytest.approx(1 / 3) and estimate.items == 3 and estimate.details["missing"] == 1
    assert estimate.low >= 0 and read_scores(path, "f1/best").scores[:3].tolist() == [1, 1, 1]
    nested = file(inspect_log(("q", 1, {"s": {"value": [[0, 0.25], 1]}}, {})), "nested.json")
    assert read_scores(nested, "s/0/1").scores == 0.25
    for metric, message in (
        (None, "^metric: got several and none chosen, wanted one of 'match', 'f1'"),
        ("f1", "^metric: got several and none chosen, wanted one of 'f1/mean', 'f1/best'"),
        ("exact", "^metric: got 'exact', wanted one of 'match', 'f1'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_scores(path, metric)
    with pytest.raises(ValueError, match="sample 1: got 'maybe' for a score"):
        read_scores(file(inspect_log(("q1", 1, {"match": {"value": "maybe"}}, {}))))


def mmlu(subject, count, score):
    rows = [harness_row(i, score, digest=f"{subject}{i}", doc={"question": f"{subject} {i}?"}) for i in range(count)]
    return [{k: v for k, v in row.items() if k != "doc_hash" or subject != "art"} for row in rows]


def test_read_scores_of_several_logs_joins_nothing_by_chance(file, tmp_path):
    anatomy, law = mmlu("anatomy", 5, 1.0), mmlu("law", 15, 0.0)
    names = [f"samples_mmlu_{name}_2026-01-02T03-04-05.678.jsonl" for name in ("anatomy", "law")]
    files = [file(rows, name) for rows, name in zip((anatomy, law), names, strict=True)]
    for several in (files, [*map(str, files)], tmp_path, f"{tmp_path}/samples_mmlu_*.jsonl"):
        scores = read_scores(several, groups="task")
        assert scores.ids[4:6] == ["mmlu_anatomy/4", "mmlu_law/0"] and {*scores.groups} == {"mmlu_anatomy", "mmlu_law"}
        assert float(interval(several)) == 0.25 and interval(several).items == 20
    assert float(compare(file(anatomy + law, "mmlu.jsonl"), file(law + anatomy, "b.jsonl"))) == 0
    dump = {"results": {}, "samples": {"anatomy": anatomy, "law": law}}
    assert read_scores(file(dump)).ids[5] == "law/0"
    again = file([{**row, "exact_match": 0.0} for row in anatomy], "samples_mmlu_anatomy_2026-02-02T03-04-05.678.jsonl")
    assert float(interval(read_scores([files[0], again]))) == 0.5 and interval([files[0], again]).items == 5
    grades = ("C", "1 + 1?"), ("I", "1 + 1?"), ("P", "2 + 2?")
    logs = [
        file(inspect_log((1, 1, {"s": {"value": grade}}, {"input": text})), f"{grade}.json") for grade, text in grades
    ]
    assert read_scores(logs[:2]).scores.tolist() == [1, 0] and len(read_scores(logs[:2])._items().values) == 1
    for twice in ([files[0], files[0]], [file("0\n1\n", "s.csv"), file("0\n1\n", "s.tsv")]):
        with pytest.raises(ValueError, match="got this file twice|got another file 's', wanted files of"):
            read_scores(twice)
    with pytest.raises(ValueError, match=r"P.json: got the item arithmetic/1 with another document"):
        read_scores(logs)
