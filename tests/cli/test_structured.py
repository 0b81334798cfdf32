"""`tensormetrics structured`, `coref`, `ner` and `amr` on small files."""

import json
from pathlib import Path

import pytest
from running import run

SCHEMA = """
from dataclasses import dataclass
from tensormetrics.structured import metametric

@metametric
@dataclass
class Mention:
    left: int
    right: int

@metametric(normalizer="f1")
@dataclass
class Doc:
    mentions: list[Mention]
"""
FILES = {
    "schema_of_documents.py": SCHEMA,
    "p.jsonl": '{"mentions": [{"left": 1, "right": 2}, {"left": 3, "right": 4}, {"left": 5, "right": 6}]}\n'
    '{"mentions": []}\n',
    "r.jsonl": '{"mentions": [{"left": 1, "right": 2}]}\n{"mentions": [{"left": 0, "right": 0}]}\n',
    "p.bio": "a B-PER\nb I-PER\nc O\n\nd B-LOC\n",
    "r.bio": "-DOCSTART- O\n\na B-PER\nb I-PER\nc B-LOC\n\nd B-LOC\n",
    "p.conll": "#begin document (x); part 000\na (0)\nb (1\nc 1)\nd (0)\n#end document\n",
    "r.conll": "#begin document (x); part 000\na (0)\nb (0\nc 0)\nd (0)\n#end document\n",
    "p.amr": "(w / want-01 :ARG0 (b / boy)\n  :ARG1 (g / go-01 :ARG0 b))\n",
    "r.amr": "# ::id 1\n(w / want-01 :ARG0 (b / boy) :ARG1 (f / football))\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["structured", "p.jsonl", "r.jsonl", "--schema", "schema_of_documents.py:Doc"],
            {"micro-precision": 1 / 3, "micro-recall": 1 / 2, "macro-precision": 1 / 6, "macro-f1": 1 / 4},
        ),
        (["ner", "p.bio", "r.bio"], {"f1": 0.8, "recall[LOC]": 0.5, "precision[PER]": 1.0}),
        (["coref", "p.conll", "r.conll"], {"muc-recall": 1 / 2, "muc-precision": 1.0, "mentions-f1": 1.0}),
        (["amr", "p.amr", "r.amr"], {"precision": 5 / 7, "recall": 5 / 6, "exact": 1.0}),
    ],
)
def test_structured_scores_equal_values_by_hand(folder, arguments, expected):
    if arguments[0] == "amr":
        pytest.importorskip("penman")
    result = run(*arguments, "--replicates", "20", "--json", "o.json", "--plot", "o.png")
    assert result.exit_code == 0, result.output
    answer = json.loads(Path("o.json").read_text())["scores"]
    for name, value in expected.items():
        assert answer[name]["value"] == pytest.approx(value) and f"{value:.4f}" in result.stdout
        assert answer[name]["low"] <= answer[name]["high"]
    assert Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_ner_suffix_reads_labels_before_the_prefix(folder):
    for name in ("p", "r"):
        tags = Path(f"{name}.bio").read_text()
        for label in ("PER", "LOC"):
            for prefix in "BI":
                tags = tags.replace(f"{prefix}-{label}", f"{label}-{prefix}")
        Path(f"{name}.bio").write_text(tags)
    scores = json.loads(run("ner", "p.bio", "r.bio", "--suffix", "--json", "-").stdout)["scores"]
    assert scores["f1"]["value"] == 0.8 and scores["recall[LOC]"]["value"] == 0.5
    result = run("ner", "p.bio", "r.bio")
    assert result.exit_code == 2 and "p.bio, line 1: got tag 'PER-B', wanted 'O', or a prefix" in result.stderr


MENTION, DOC = "\nclass Mention{}:\n    left: int\n", "\nclass Doc{}:\n    mentions: list[Mention]\n"
DATACLASS, PYDANTIC = "from dataclasses import dataclass", "import pydantic" + MENTION.format("(pydantic.BaseModel)")
CLASSES = {
    "dataclass": DATACLASS + f"\n@dataclass{MENTION}@dataclass{DOC}".replace("{}", ""),
    "NamedTuple": "from typing import NamedTuple" + (MENTION + DOC).replace("{}", "(NamedTuple)"),
    "TypedDict": "from typing import TypedDict" + (MENTION + DOC).replace("{}", "(TypedDict)"),
    "attrs": "import attrs" + f"\n@attrs.define{MENTION}@attrs.define{DOC}".replace("{}", ""),
    "msgspec": "import msgspec" + (MENTION + DOC).replace("{}", "(msgspec.Struct)"),
    "pydantic": PYDANTIC + DOC.format("(pydantic.BaseModel)"),
    "pydantic under @metametric": PYDANTIC
    + "from tensormetrics.structured import metametric\n@metametric(normalizer='f1')"
    + DOC.format("(pydantic.BaseModel)"),
    "pydantic in a dataclass": f"{DATACLASS}\n{PYDANTIC}@dataclass{DOC.format('')}",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_structured_accepts_every_kind_of_record_as_schema(folder, kind):
    if (package := kind.split()[0]) in ("attrs", "msgspec", "pydantic"):
        pytest.importorskip(package)
    Path("kind.py").write_text(CLASSES[kind])
    Path("x.jsonl").write_text('{"mentions": [{"left": 1}, {"left": 2}]}\n')
    Path("y.jsonl").write_text('{"mentions": [{"left": 2}]}\n')
    schema = ["--schema", "kind.py:Doc"]
    result = run("structured", "x.jsonl", "y.jsonl", *schema, "--json", "-")
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)["scores"]
    assert (scores["micro-precision"]["value"], scores["micro-recall"]["value"]) == (0.5, 1)
    for wrong, message in {
        '{"mentions": [{"left": "1"}]}': "int",
        '{"mentions": [{}]}': "left",
        "3": "wanted an object",
    }.items():
        Path("x.jsonl").write_text(f"{wrong}\n")
        result = run("structured", "x.jsonl", "y.jsonl", *schema)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert result.stderr.startswith("tensormetrics: x.jsonl, line 1: ")
        assert message in result.stderr
    Path("x.jsonl").write_text('{"mentions": [{"left": 1, "right": 2}, {"left": 2}], "more": 1}\n')
    assert run("structured", "x.jsonl", "y.jsonl", *schema).exit_code == 0  # other keys are ignored


def test_structured_field_named_metric_is_scored(folder):
    Path("kind.py").write_text("from dataclasses import dataclass\n@dataclass\nclass Doc:\n    metric: str = 'm'\n")
    Path("x.jsonl").write_text('{"metric": "f1"}\n')
    result = run("structured", "x.jsonl", "x.jsonl", "--schema", "kind.py:Doc")
    assert result.exit_code == 0 and "micro-f1         1.0000" in result.stdout
