"""`tensormetrics association --pairs` with tiny models."""

import json
from functools import partial

import pytest
import running
from tiny_models import make

from tensormetrics.association import PairPreference, read_sentence_pairs, read_sentence_triples, score_pairs

run = partial(running.run, "association")
succeed = partial(running.succeed, "association")

pytestmark = pytest.mark.full  # a second of imports

PAIRS = """,sent_more,sent_less,stereo_antistereo,bias_type
0,the women left home.,the men left home.,stereo,gender
1,a man was a good doctor,a woman was a good doctor,stereo,gender
2,the old man was bad,the young man was bad,antistereo,age
3,an old woman left,a young woman left,stereo,age
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.csv").write_text(PAIRS)
    labels = ["stereotype", "anti-stereotype", "unrelated"]
    words = ["good", "bad", "engineer"]
    rows = [{"id": w, "sentence": f"He is {w}.", "gold_label": x} for w, x in zip(words, labels, strict=True)]
    item = {"context": "He is BLANK.", "target": "he", "bias_type": "gender", "sentences": rows}
    (folder / "dev.json").write_text(json.dumps({"data": {"intrasentence": [item, {**item, "target": "she"}]}}))
    for name in ("bert_mlm", "gpt2", "bert"):
        model, tokenizer = make(name)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
@pytest.mark.parametrize("name", ["bert_mlm", "gpt2"])
@pytest.mark.parametrize("protocol", [None, "crows-pairs"])
def test_association_pairs_scores_equal_pair_preference(folder, tmp_path, name, protocol):
    options = ["--protocol", protocol] if protocol else []
    result = succeed("--pairs", folder / "pairs.csv", "--model", folder / name, "--json", tmp_path / "o.json", *options,
                 "--replicates", 100, "--plot", tmp_path / "o.png", "--figsize", "5x3")  # fmt: skip
    answer = json.loads((tmp_path / "o.json").read_text())["metrics"]["pairpreference"]
    pairs = read_sentence_pairs(folder / "pairs.csv")
    metric = PairPreference(protocol, categories=["age", "gender"])
    metric.update(*score_pairs(*make(name), pairs), categories=pairs.categories)
    intervals, tests = metric.interval(replicates=100), metric.sign_test(replicates=100)
    assert [*answer] == ["all", "age", "gender"]
    for key, row in answer.items():
        assert [row["score"], row["low"], row["high"]] == pytest.approx([*map(float, intervals[key])])
        assert row["p"] == pytest.approx(float(tests[key].p_value))
    assert answer["all"]["corrected p"] is None and answer["age"]["corrected p"] >= answer["age"]["p"]
    assert (tmp_path / "o.png").stat().st_size > 1000 and "pairpreference" in result.output


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
def test_association_triples_scores_equal_pair_preference(folder):
    files = "--pairs", folder / "dev.json", "--model", folder / "bert_mlm"
    answer = running.answer("association", *files)["metrics"]["pairpreference"]
    triples = read_sentence_triples(folder / "dev.json")
    metric = PairPreference("stereoset", categories=["gender"])
    metric.update(*score_pairs(*make("bert_mlm"), triples), categories=triples.categories, terms=triples.terms)
    assert {name: row["score"] for name, row in answer.items()} == {k: float(v) for k, v in metric.compute().items()}
    assert [*answer] == ["ss", "lms", "icat", "gender/ss", "gender/lms", "gender/icat"]


def test_association_pairs_conflicting_options_are_named(folder):
    pairs, model = folder / "pairs.csv", folder / "bert_mlm"
    for arguments, message in [
        (["--pairs", pairs, "--model", folder], "wanted a folder with config.json, as save_pretrained writes it"),
        (["--pairs", folder / "no.csv", "--model", model], "there is no such file"),
        (["--pairs", pairs, "--model", model, "--protocol", "stereoset"], "--protocol: got stereoset for"),
        (["--pairs", pairs, "--model", folder / "bert"], "got a BertModel, score_pairs wants a masked language model"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2 and message in result.output.replace("\n", " "), result.output
