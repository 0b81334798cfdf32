"""Files that users have: all doors to a file give one value or one message, and nothing is joined by chance."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tensormetrics import compare, interval
from tensormetrics._cli.inputs.arrays import read_tensor
from tensormetrics._cli.inputs.battles import ONE_HOT
from tensormetrics.association import WordEmbeddingModel
from tensormetrics.posterior import load_csv
from tensormetrics.retrieval import evaluate_run
from tensormetrics.structured import BoxMatch, CorefScores, Smatch, SpanScores, evaluate
from tensormetrics.uncertainty import Ratings, read_scores

sys.path.insert(0, str(Path(__file__).parent / "cli"))
from running import run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
Door = Callable[[], Any] | str  # a call, or a command with the name of its score: "amr p r > f1"


class Case(NamedTuple):
    files: dict[str, str | bytes]
    doors: tuple[Door, ...]
    wanted: float | str  # a value, or a part of a message


def numbers_of(door: Door) -> list[float]:
    """Return a score and the ends of its interval; a ValueError has what a command says of bad input."""
    if not isinstance(door, str):
        result = door()
        return [float(x) for x in (result, *(getattr(result, end, None) for end in ("low", "high"))) if x is not None]
    command, _, name = door.partition(" > ")
    output = run(command, "--format", "json")
    if output.exit_code == 2:
        raise ValueError(output.stderr)
    assert output.exit_code == 0, output.output
    answer = json.loads(output.stdout)
    if isinstance(value := answer.get("scores", {}).get(name), float):
        return [value]
    rows = [row for table in answer["tables"] for row in table["rows"]]
    cells = [(row["name"], column, cell) for row in rows for column, cell in row["cells"].items()]
    cell = next(cell for row, column, cell in cells if name in (row, column))
    return [cell[key] for key in ("value", "difference", "low", "high") if key in cell]


def check_refused(door: Door, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        numbers_of(door)
    assert message in str(caught.value)


def updated(metric: Any, name: str, *sides: Any, **options: Any) -> Callable[[], Any]:
    def door() -> Any:
        if metric is Smatch:
            pytest.importorskip("penman")
        scores = metric(**options)
        update = {CorefScores: "update_clusters", SpanScores: "update_tags"}.get(metric, "update")
        getattr(scores, update)(*(sides or ("p", "r")))
        return scores.compute()[name]

    return door


def frame(file: str, **options: Any) -> Any:
    return pytest.importorskip("pandas").read_csv(file, **options)


def difference(models: Any, **options: Any) -> Any:
    return compare(models, **options)["a - b", "difference"]


def rated(battles: Any) -> Any:
    ratings = Ratings()
    ratings.update(battles.model_a, battles.model_b, battles[[*ONE_HOT]])
    return ratings.table()


def lines(*rows: Any) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def scores(text: Any, wanted: float | str, metric: str | None = None, **options: Any) -> Case:
    given = {name: value for name, value in {"metric": metric, **options}.items() if value}
    words = "".join(f" --{name} {str(value).strip('()').replace(',', '')}" for name, value in given.items())
    words = words.replace(" True", "")
    of_file = {name: options.pop(name) for name in ("ids", "groups") if name in options}
    doors: tuple[Door, ...] = (
        lambda: interval(read_scores("s", metric, **of_file), **options),
        lambda: interval("s", score=metric, **of_file, **options),
        f"scores s{words} > value",
    )
    return Case({"s": text if isinstance(text, str | bytes) else lines(*text)}, doors, wanted)


def matrix(text: str, wanted: float | str) -> Case:
    return Case({"m.csv": text}, (lambda: load_csv("m.csv").trace() / load_csv("m.csv").sum(),), wanted)


def answers(
    texts: list[Any], references: list[Any], wanted: float | str, name: str = "micro-f1", **options: Any
) -> Case:
    words = "".join(f" --option {key}={value}" for key, value in options.items())
    doors = (lambda: evaluate(texts, references, **options).totals[name]), f"json p r{words} > {name}"
    return Case({"p": lines(*texts), "r": lines(*references)}, doors, wanted)


def pair(metric: Any, pred: str, ref: str, wanted: float | str, **options: Any) -> Case:
    command, name, option = ("amr", "f1", "--") if metric is Smatch else ("coref", "conll-f1", "--option ")
    words = "".join(f" {option}{key}={value}".replace("on_invalid", "on-invalid") for key, value in options.items())
    return Case({"p": pred, "r": ref}, (updated(metric, name, **options), f"{command} p r{words} > {name}"), wanted)


def tags(text: str, wanted: float | str) -> Case:
    return Case({"p": text}, (updated(SpanScores, "f1", "p"), "ner p > f1"), wanted)


def boxes(pred: Any, ref: Any, wanted: float | str, name: str = "recall") -> Case:
    return Case({}, (updated(BoxMatch, name, pred, ref),), wanted)


def sample(doc_id: int, subject: str, acc: float) -> dict[str, Any]:
    return {"doc_id": doc_id, "doc": {"s": subject}, "filter": "none", "metrics": ["acc"], "resps": [], "acc": acc}


def log(*graded: Any, **more: Any) -> dict[str, Any]:
    samples = [{"id": i, "epoch": 1, "scores": {"m": {"value": grade}}, **more} for i, grade in enumerate(graded)]
    return {"eval": {"task": "t"}, "samples": samples}


GROUPED = "id,score,topic\n" + "".join(f"q{i},{int(i % 10 > 2)},t{i // 4}\n" for i in range(60))
MMLU = [sample(i, s, acc) for s, n, acc in (("anatomy", 4, 1.0), ("law", 12, 0.0)) for i in range(n)]
MODELS = lines("id,model,acc", *(f"q{i},{m},{int(i < n)}" for m, n in (("a", 9), ("b", 2)) for i in range(10)))
GRAPHS = "# ::id 1 ::snt He wants.\n(w / want :ARG0 (b / boy))\n\n# ::id 2\n(d / dog)\n"
UNBALANCED = GRAPHS.replace("boy))", "boy)")
CONLL = "#begin document (a)\nAnn (0)\nsaw -\nher (0)\n#end document\n"
TWICE = CONLL.replace("(0)\nsaw", "(0)|(1)\nsaw")
CLUSTERS = {"doc_key": "(a)", "sentences": [["Ann", "saw"], ["her"]], "clusters": [[[0, 0], [2, 2]]]}
BOX = [[0.0, 0.0, 2.0, 2.0]]
TWO_BOXES = torch.tensor([[0.0, 0, 2, 2], [5, 5, 6, 6]])

CASES = {
    # Tables of scores, and of counts.
    "one number a line": scores("0.3\n0.5\n1\n", 0.6),
    "no heading": scores("q1,1\nq2,0\n", 0.5),
    "groups": scores(GROUPED, 0.7, groups="topic", replicates=200),
    "bounds": scores("score\n" + "".join(f"{i * i % 11}\n" for i in range(40)), 3.925, bounds=(0, 10)),
    "anytime": scores(GROUPED, 0.7, anytime=True),
    "semicolons and decimal commas": scores("id;score\nq1;0,5\nq2;1\n", 0.75),
    "decimal commas in a frame": Case(
        {"s": "id;score\nq1;0,5\nq2;1\n"},
        (lambda: interval("s"), lambda: interval(frame("s", sep=";", decimal=","), score="score")), 0.75,
    ),
    "thousands": scores("id;score\nq1;1.234,5\nq2;0,5\n", 617.5),
    "decimal commas in quotes": scores('id,score\nq1,"0,5"\nq2,1\n', 0.75),
    "decimal commas in JSON": scores([{"id": 1, "score": "0,5"}, {"id": 2, "score": 1}], 0.75),
    "decimal commas alone": scores("0,3\n0,5\n", "s, line 2: got '0,5', which looks like a number with a"),
    "ambiguous commas": scores("id;score\nq1;1,234\n", "s, line 2: got '1,234', wanted one sign for decimals"),
    "delimiter of a spreadsheet": scores("sep=;\nid;score\nq1;0,5\nq2;1\n", 0.75),
    "tabs in UTF-16": scores("id\tscore\nq1\t0,5\nq2\t1\n".encode("utf-16"), 0.75),
    "blank line, missing score": scores("id,score\nq1,0.5\n\nq2,\nq3,1\n", 0.75),
    "JSON lines": scores([{"id": "q1", "score": 0.5}, {"id": "q2", "score": None}, {"id": "q3", "score": 1}], 0.75),
    "indented JSON": scores(json.dumps([{"id": 1, "score": 0.5}, {"id": 2, "score": 1}], indent=1), 0.75),
    "words for truth": scores("right\ntrue\nfalse\n", 0.5, "right"),
    "no number": scores("id,score\nq1,1\nq2,good\n", "s, line 3: got 'good' for a score, wanted a number"),
    "fewer cells": scores("id,score\nq1,1\nq2\n", "s, line 3: got 1 columns, wanted 2 as above"),
    "other column": scores("id,acc\nq1,1\nq2,0\n", 0.5),
    "percentages": scores("id,score\nq1,80%\n", "wanted a number; this looks like a percentage"),
    "no such ids": scores("id,score\nq1,1\n", "s, line 2: got no 'name', wanted one for each item", ids="name"),
    "JSON that ends": scores('{"id": 1, "score": 1}\n{"id": 2, \n', "s, line 2: wanted JSON; "),
    "heading alone": scores("id,score\n", "s: got no items, wanted at least one"),
    "archive": scores("PK\x03\x04", "s: got an archive, such as an .eval log of inspect_ai; write it as JSON"),
    "two models": Case(
        {"s": MODELS},
        (lambda: read_scores("s", "acc"), lambda: interval(frame("s"), score="acc"), "scores s --metric acc"),
        "has 10 rows whose id occurs before, and 2 values of 'model'",
    ),
    "two models compared": Case(
        {"s": MODELS},
        (
            lambda: difference(read_scores("s", "acc", model="model")),
            lambda: difference("s", score="acc", model="model"),
            lambda: difference(frame("s"), score="acc", model="model"),
            "scores s --metric acc --model model > difference",
        ), 0.7,
    ),
    "integer ids and groups": Case(
        {"s": "id,score,topic\n" + "".join(f"{i},{i % 3},{i // 4}\n" for i in range(40))},
        (
            lambda: interval("s", groups="topic"), lambda: interval(frame("s"), score="score", groups="topic"),
            lambda: interval(frame("s").to_dict("list")["score"], ids=range(40), groups=[i // 4 for i in range(40)]),
            "scores s --groups topic > value",
        ), 0.975,
    ),
    "frames in another order": Case(
        {"s": "acc\n1\n0\n1\n"},
        (
            lambda: compare(frame("s"), frame("s")[::-1], score="acc"),
            lambda: compare(frame("s").acc, frame("s").acc[::-1]),
        ), "ids: got none, and rows whose index has another order",
    ),
    "frames of ids in another order": Case(
        {"s": "id,acc\n1,1\n2,0\n3,1\n4,1\n"},
        (lambda: compare(frame("s")[1:], frame("s")[::-1], score="acc", on_missing="zero"),), -0.25,
    ),
    "matrix with decimal commas": matrix("0,5;1\n1;0,5\n", 1 / 3),
    "rows with decimal commas": Case({"x.csv": "0,5;1\n1,5;2\n"}, (lambda: read_tensor("x.csv").sum(),), 5),
    "word that is a space": Case(
        {"v": "3 2\na 1 2\n  3 4\nb 5 6\n"}, (lambda: len(WordEmbeddingModel.from_word2vec("v").vocab),), 3
    ),
    "winners of Kaggle": Case(
        {"s": f"id,model_a,model_b,{','.join(ONE_HOT)}\n1,x,y,1,0,0\n2,x,y,0,1,0\n3,x,y,0,0,1\n4,x,y,1,0,0\n"},
        ("ratings s > win rate", lambda: rated(frame("s"))["x", "win rate"]), 0.625,
    ),
    # Logs.
    "subjects of MMLU in one file": scores(MMLU, 0.25),
    "another metric": scores(MMLU, "metric: got 'f1', wanted one of 'acc'", "f1"),
    "score of a corpus": scores([sample(0, "law", [0.5, 3])], "s, line 1: acc is a metric of the whole corpus"),
    "score beside an error": scores([log("C", "C", "I", error={"message": "late"})], 2 / 3),
    "grades": scores([log("C", "P", "N", "I")], 0.375),
    "no grades": scores([{"eval": {}, "samples": [{"id": 1}]}], "got a log whose samples have no scores; score it"),
    "header alone": scores([log()], "got a log of inspect_ai without samples, as --header-only writes"),
    "results alone": scores([{"results": {"mmlu": {"acc": 1}}, "configs": {}}], "wanted samples_*.jsonl, which --log"),
    "frame of inspect_ai": scores("sample_id,id,epoch,score_m\nx,q1,1,C\ny,q1,2,I\nz,q2,1,P\n", 0.5, "m"),
    "folder of logs": Case(
        {f"samples_{t}.jsonl": lines(*(sample(i, t, float(i > n)) for i in range(9))) for n, t in enumerate("uvw")},
        (lambda: interval(read_scores(".", groups="task")), "scores . --groups task > value"), 7 / 9,
    ),
    "two models at any time": Case(
        {name: "score\n" + "".join(f"{int(i % n > 0)}\n" for i in range(60)) for name, n in (("p", 6), ("r", 3))},
        (lambda: compare("p", "r", anytime=True), "scores p r --anytime > difference"), 1 / 6,
    ),
    # Answers in JSON.
    "null in every reference": answers([{"a": [], "b": 1}], [{"a": None, "b": 1}], 1),
    "last comma": answers(['{"a": 1,}'], [{"a": 1}], 0),
    "last comma repaired": answers(['{"a": 1,}'], [{"a": 1}], 1, extract="repair"),
    "Python repaired": answers(
        ["Sure: {'a': None, 'b': ['it's', \"x\"], 'c': True,}"], [{"a": None, "b": ["it's", "x"], "c": True}], 1,
        extract="repair",
    ),
    "NaN of an answer": answers(['{"a": NaN, "b": 1}'], [{"a": 2.0, "b": 1}], 1, "readable"),
    "answer in a log, and in a list": Case(
        {"p": lines({"r": [{"t": '{"a": 1}'}], "f": ['{"a": 1}']}), "r": lines({"a": 1})},
        ("json p r --answer r[0].t > micro-f1", "json p r --answer f > micro-f1"), 1,
    ),
    "two answers in a list": Case(
        {"p": lines({"f": ["1", "2"]}), "r": lines({"a": 1})},
        ("json p r --answer f > micro-f1",), "p, line 1: got 2 answers, wanted one; write --answer 'f[0]'",
    ),
    "ids 0 and '0'": Case(
        {"p": lines({"id": 0, "a": 1}, {"id": "1", "a": 2}), "r": lines({"id": 1, "a": 2}, {"id": "0", "a": 1})},
        ("json p r --id id > micro-f1",), 1,
    ),
    "one object over several lines": Case(
        {"p": lines({"a": 1}), "r": '{\n "a": 1\n}\n'}, ("json p r > micro-f1", "json r p > micro-f1"), 1
    ),
    # Graphs.
    "unbalanced graph": pair(Smatch, UNBALANCED, GRAPHS, "p, line 2: '(w / want :ARG0 (b / boy)\\n' is no graph in"),
    "unbalanced graph counts as wrong": pair(Smatch, UNBALANCED, GRAPHS, 0.5, on_invalid="wrong"),
    "unbalanced reference": pair(Smatch, GRAPHS, UNBALANCED, "r, line 2: ", on_invalid="wrong"),
    # Tags.
    "conlleval": tags("Ann NNP B-PER B-PER\nsaw V O O\n\nIt X O B-ORG\n", 2 / 3),
    "conlleval in CoNLL-U": tags("# sent_id = 1\n1-2 _ _ _\n1 Ann B-PER B-PER\n2 it O B-ORG\n", 2 / 3),
    "one column of tags": tags("Ann B-PER\n", "p, line 1: got 2 columns, wanted a token, its tag and the predicted"),
    "tags in JSON": tags('{"words": ["a"], "tags": ["O"]}\n', "; this looks like a table or JSON: write a line"),
    "tags without prefix": tags("Ann PER PER\n", "; this looks like a label alone: write I-PER"),
    # Coreference.
    "clusters in JSON lines": pair(CorefScores, lines(CLUSTERS), CONLL, 1),
    "clusters in a JSON list": pair(CorefScores, json.dumps([CLUSTERS], indent=1), lines(CLUSTERS), 1),
    "clusters of JSON in Python": Case({}, (updated(CorefScores, "conll-f1", *[[CLUSTERS["clusters"]]] * 2),), 1),
    "other words": pair(CorefScores, lines(CLUSTERS).replace("Ann", "Eve"), CONLL, "p, line 1: got 'Eve', but r, line"),
    "no clusters": pair(CorefScores, '{"a": 1}\n', CONLL, "p, line 1: got 'a', wanted a key 'clusters'"),
    "mention twice": pair(CorefScores, CONLL, TWICE, "is in two clusters; repeated_mentions='first' or"),
    "mention twice, first": pair(CorefScores, CONLL, TWICE, 1, repeated_mentions="first"),
    # Boxes.
    "images of unequal length": boxes([BOX, []], [TWO_BOXES, BOX], 1 / 3),
    "images of a detector": boxes(
        [{"boxes": torch.tensor(BOX), "scores": torch.tensor([0.9]), "labels": torch.tensor([1])}],
        [{"boxes": TWO_BOXES, "labels": torch.tensor([2, 1])}], 0,
    ),
    "images without labels": boxes([{"boxes": BOX}], [{"boxes": TWO_BOXES, "labels": [1, 2]}], 0.5),
    "an image without boxes": boxes([{"box": BOX}], [{"boxes": BOX}], "pred_boxes: image 0 has 'box', wanted 'boxes'"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_of_users_give_one_value_or_message_through_all_doors(case):
    for name, content in case.files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(case.wanted, str):
        for door in case.doors:
            check_refused(door, case.wanted)
        return
    numbers = [numbers_of(door) for door in case.doors]
    assert all(x[:1] == pytest.approx([case.wanted], abs=1e-12) for x in numbers)
    assert all(x == y for one in numbers for x, y in zip(one, numbers[0], strict=False))


class Format(NamedTuple):
    """Two files of items that are joined, and the doors that compare them."""

    write: Callable[[str, int, bool], str]  # item, whether the answer is right, whether this is the file of answers
    doors: tuple[Door, ...]
    messages: dict[str, str]  # of the changes of the answers that are refused; others leave the value as it is
    heading: str = ""


COUNTED = dict.fromkeys(("repeated", "one more"), "p: number of sentences is 5, but that of r is 4")
SWAPPED = {"repeated": "p: got the document 'x' twice for the query 'a1'", "swapped": "were the two swapped?"}
OF_TREC: tuple[Door, ...] = lambda: evaluate_run("p", "r", ["P_1"]).summary()["P_1"], "trec p r --metric P_1 > P_1"
OF_SCORES: tuple[Door, ...] = lambda: compare("p", "r"), "scores p r > difference"
OF_TAGS: tuple[Door, ...] = updated(SpanScores, "f1"), "ner p r > f1"
OF_COREF: tuple[Door, ...] = updated(CorefScores, "conll-f1"), "coref p r > conll-f1"
FORMATS = {
    "scores": Format(
        lambda item, right, _: f"{item},{right}\n", OF_SCORES, {"one more": "ids: b lacks 1 of 5"}, "id,score\n"
    ),
    "scores in JSON lines": Format(
        lambda item, right, _: lines({"id": item, "score": right}), OF_SCORES, {"one more": "ids: b lacks 1 of 5"}
    ),
    "logs": Format(
        lambda item, right, _: lines(sample(item, item, right)),
        (lambda: compare("p", "r", score="acc"), "scores p r --metric acc > difference"),
        {"repeated": "p, line 5: got the item a1 again, after p, line 1", "one more": "ids: b lacks 1 of 5"},
    ),
    "trec": Format(
        lambda i, right, is_answer: f"{i} Q0 x 1 {right} t\n{i} Q0 y 2 .5 t\n" if is_answer else f"{i} 0 x 1\n",
        OF_TREC, SWAPPED,
    ),
    "trec in JSON lines": Format(
        lambda i, right, is_answer: (
            lines(*({"qid": i, "docno": d, "score": s} for d, s in (("x", right), ("y", 0.5))))
            if is_answer else lines({"qid": i, "docno": "x", "gain": 1})
        ),
        OF_TREC, SWAPPED,
    ),
    "ner": Format(
        lambda item, right, _: f"{item} B-{right}\nof O\n\n", OF_TAGS,
        {"reordered": "p, line 1: got 'd4', but r, line 1 has 'a1'", **COUNTED},
    ),
    "ner with ids": Format(
        lambda item, right, _: f"# id {item}\n{item} B-{right}\nof O\n\n", OF_TAGS,
        {**COUNTED, "one more": "p, line 18: got the id 'e5', which r does not have"},
    ),
    "coref": Format(
        lambda item, right, _: f"#begin document {item}\nx (0)\ny ({1 - right})\n#end document\n", OF_COREF,
        {"repeated": "p: number of documents is 5", "one more": "p, line 18: got the id 'e5', which r does not have"},
    ),
    "coref in JSON lines": Format(
        lambda item, right, _: lines({"id": item, "clusters": [[[0, 0], [1, 1]]] if right else [[[0, 0]], [[1, 1]]]}),
        OF_COREF, {"repeated": "p, line 5: got the id 'a1' again", "one more": "p, line 5: got the id 'e5', which r"},
    ),
    "amr": Format(
        lambda item, right, _: f"# ::id {item} ::snt He.\n({'g / go' if right else 'w / want'})\n\n",
        (updated(Smatch, "f1"), "amr p r > f1"),
        {"repeated": "p, line 13: got the id 'a1' again, that", "one more": "p, line 13: got the id 'e5', which r"},
    ),
    "json": Format(
        lambda item, right, _: lines({"id": item, "a": right}),
        ("json p r --id id > micro-f1",),
        {"repeated": "p, line 5: got the id 'a1' again, that", "one more": "p, line 5: got the id 'e5', which r"}
        | {"latin-1": "p, line 3: got no object, wanted one with the key 'id'"},
    ),
    "json by position": Format(
        lambda item, right, _: lines({"id": item, "a": right}),
        ("json p r > micro-f1",),
        {"reordered": "p, line 1: got 'id d4', but r, line 1 has 'id a1'"}
        | dict.fromkeys(("repeated", "one more"), "p: number of documents is 5, but that of r is 4"),
    ),
}  # fmt: skip
ITEMS = ["a1", "b2", "c3", "d4"]  # the answer to the last one is wrong
CHANGES = {"reordered": ITEMS[::-1], "repeated": [*ITEMS, "a1"], "one more": [*ITEMS, "e5"], "swapped": ITEMS}


@pytest.mark.parametrize("change", [*CHANGES, "utf-16", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("name", FORMATS)
def test_changed_files_have_the_same_value_or_name_the_difference(name, change):
    write, doors, messages, heading = FORMATS[name]

    def text(items: list[str], is_answer: bool) -> str:
        texts = (write(item, int(not is_answer or item != "d4"), is_answer) for item in items)
        return (heading + "".join(texts)).replace("c3", "\xe9" if change == "latin-1" else "c3")

    Path("p").write_text(text(ITEMS, True))
    Path("r").write_text(text(ITEMS, False))
    before, *others = (numbers_of(door)[0] for door in doors)
    assert others == pytest.approx([before] * len(others)) and abs(before) not in (0, 1)
    encoding = None if change in CHANGES else change
    Path("p").write_text(text(CHANGES.get(change, ITEMS), True), encoding)
    if change == "swapped":
        answers = Path("p").rename("answers").read_text()
        Path("r").rename("p")
        Path("r").write_text(answers)
    for door in doors:
        if change in messages:
            check_refused(door, messages[change])
        elif (name, change) == ("json by position", "latin-1"):
            assert numbers_of(door)[0] < before  # an unreadable answer
        elif change == "latin-1" and chr(0xE9).encode(change) in Path("p").read_bytes():
            check_refused(door, "got the byte 0xe9, wanted text in UTF-8; in cp1252, as Windows writes it, this is 'é'")
        else:
            assert abs(numbers_of(door)[0]) == pytest.approx(abs(before))
