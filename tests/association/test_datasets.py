import hashlib
import http.server
import json
import os
import urllib.error
from email.message import Message

import pytest
from metric_cases import answer
from raising import raises

from tensormetrics.association import (
    WEAT,
    Query,
    fetch_debias_multiclass,
    fetch_debiaswe,
    fetch_eds,
    fetch_gn_glove,
    load_bingliu,
    load_weat,
    load_weat_w2v,
)
from tensormetrics.association.embeddings import datasets

W2V = os.environ.get("TENSORMETRICS_WEAT_W2V")
URL = "https://raw.githubusercontent.com/a/b/words.txt"


def http(code):
    return urllib.error.HTTPError(URL, code, "busy", Message(), None)


@pytest.fixture
def clock(monkeypatch):
    """Record the seconds to sleep instead of sleeping."""
    slept = []
    monkeypatch.setattr(datasets.time, "sleep", slept.append)
    return slept


@pytest.fixture
def network(monkeypatch):
    """Replace the host by a list of errors and contents, which it returns one after the other."""
    answers = []

    def get(url, timeout):
        assert timeout == 30
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(datasets, "_get", get)
    return answers


def write(folder, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text, encoding="latin-1")


def test_load_weat_returns_published_sets():
    sets = load_weat()
    digest = hashlib.sha256(json.dumps(sets).encode()).hexdigest()
    assert digest == "cd5808c51359f6cb6c7151f48958f47851251e82fe9d8d00c4c220b245417596"
    load_weat()["career"].clear()
    assert len(load_weat()["career"]) == 8


def test_load_weat_w2v_reads_local_file(tmp_path):
    (tmp_path / "vectors.txt").write_text("2 3\nrose 1 0 0.5\nant 0 1 -2\n")
    model = load_weat_w2v(tmp_path / "vectors.txt")
    assert (model.name, list(model.vocab), model["ant"].tolist()) == ("weat_w2v", ["rose", "ant"], [0, 1, -2])


@pytest.mark.skipif(not W2V, reason="TENSORMETRICS_WEAT_W2V names no file")
def test_load_weat_w2v_published_vectors_give_published_effect():
    model, sets = load_weat_w2v(W2V), load_weat()
    assert model.vectors.shape == (347, 300)
    flowers = Query([sets["flowers"], sets["insects"]], [sets["pleasant_5"], sets["unpleasant_5a"]])
    assert answer(WEAT(), flowers, model)["effect_size"] == pytest.approx(1.5, abs=0.2)  # 1.54 in the paper


def test_load_weat_w2v_wrong_hash_raises(network):
    network.append(b"1 2\nrose 1 0\n")
    url = "https://raw.githubusercontent.com/dccuchile/wefe/master/wefe/datasets/data/weat_w2v____old.txt"
    got = hashlib.sha256(b"1 2\nrose 1 0\n").hexdigest()
    expected = "4dab4d3a604b2f021d57c99957919ab4d021ce699d28aad1d8168e54c754927f"
    with raises(ValueError, f"{url}: got a file with the SHA-256 {got}, wanted {expected}; give a local copy as path="):
        load_weat_w2v()


def test_load_weat_w2v_right_hash_is_read(network, monkeypatch):
    content = b"1 2\nrose 1 0\n"
    network.append(content)
    monkeypatch.setattr("tensormetrics.association.embeddings.datasets.W2V_SHA256", hashlib.sha256(content).hexdigest())
    assert load_weat_w2v()["rose"].tolist() == [1, 0]


def test_load_bingliu_reads_local_folder(tmp_path):
    (tmp_path / "positive-words.txt").write_bytes(b"; Opinion\n;\n\na+\ngood\n")
    (tmp_path / "negative-words.txt").write_bytes("; Opinion\n\nna\u00efve\nbad\n".encode("latin-1"))
    assert load_bingliu(tmp_path) == {"positive_words": ["a+", "good"], "negative_words": ["na\u00efve", "bad"]}


def test_fetch_eds_reads_local_folder(tmp_path):
    groups = ["adjectives_appearance", "adjectives_otherization", "adjectives_sensitive"]
    groups += [f"names_{of}" for of in ("asian", "black", "chinese", "hispanic", "russian", "white")]
    groups += [f"words_{of}" for of in ("christianity", "islam", "terrorism")]
    for name in (*groups, "male_pairs", "female_pairs", "adjectives_intelligencegeneral"):
        (tmp_path / f"{name}.txt").write_text(f"{name} one\ntwo\n")
    (tmp_path / "occupation_percentages_gender_occ1950.csv").write_text(
        "Census year,Occupation,Female,Male\n2015,smith,0.1,0.9\n2015,clerk,0.5,0.5\n2015,nurse,0.9,0.1\n"
        "1950,cook,0.2,0.8\n2015,unknown,,\n"
    )
    (tmp_path / "occupation_percentages_race_occ1950.csv").write_text(
        "Census year,Occupation,white,hispanic,asian,black\n2015,smith,0.7,0.1,0.1,0.1\n2015,clerk,0.2,0.2,0.3,0.3\n"
        "2015,nurse,0.4,0.3,0.2,\n1950,cook,1,1,1,1\n"
    )
    sets = fetch_eds(top_n_race_occupations=2, path=tmp_path)
    occupations = [f"occupations_{of}" for of in ("white", "black", "asian", "hispanic")]
    last = ["male_terms", "female_terms", "adjectives_intelligence"]
    assert list(sets) == [*groups, "male_occupations", "female_occupations", *occupations, *last]
    assert sets["names_white"] == ["names_white one", "two"] and sets["male_terms"] == ["male_pairs one", "two"]
    assert (sets["male_occupations"], sets["female_occupations"]) == (["smith", "clerk"], ["nurse"])
    assert [sets[name] for name in occupations] == [
        ["smith", "nurse"],
        ["clerk", "smith"],
        ["clerk", "nurse"],
        ["nurse", "clerk"],
    ]
    assert fetch_eds(1950, path=tmp_path)["occupations_black"] == ["cook"]
    with raises(ValueError, "occupations_year: got 1951, wanted one of 1950, 2015"):
        fetch_eds(1951, path=tmp_path)


def test_fetch_debiaswe_reads_local_folder(tmp_path):
    write(
        tmp_path,
        definitional_pairs__json=[["woman", "man"], ["girl", "boy"]],
        equalize_pairs__json=[["monastery", "convent"]],
        gender_specific_full__json=["he", "she"],
        professions__json=[["nurse", -0.8, 0.1], ["smith", 0.4, 0.2]],
    )
    sets = fetch_debiaswe(path=tmp_path)
    assert list(sets) == "male_terms female_terms definitional_pairs equalize_pairs gender_specific professions".split()
    assert (sets["male_terms"], sets["female_terms"]) == (["man", "boy"], ["woman", "girl"])
    assert sets["definitional_pairs"] == [["woman", "man"], ["girl", "boy"]]
    assert (sets["equalize_pairs"], sets["gender_specific"]) == ([["monastery", "convent"]], ["he", "she"])
    assert sets["professions"] == ["nurse", "smith"]


def test_fetch_debias_multiclass_reads_local_folder(tmp_path):
    gender = {
        "definite_sets": [["he", "she"], ["his", "hers"]],
        "analogy_templates": {"role": {"man": ["smith"], "woman": ["nurse"]}},
        "eval_targets": [["he", "she"]],
    }
    race = {
        "definite_sets": [["black", "caucasian", "asian"], ["africa", "europe", "asia"], ["black", "white", "asian"]],
        "analogy_templates": {"role": {"caucasian": ["c"], "asian": ["a"], "black": ["b"]}},
        "eval_targets": [["africa", "europe", "asia"]],
    }
    religion = {
        "definite_sets": [["judaism", "christianity", "islam"], ["jew", "christian", "muslim"]],
        "analogy_templates": {"attribute": {"jew": ["j"], "christian": ["k"], "muslim": ["m"]}},
        "eval_targets": [["jew", "christian", "muslim"]],
    }
    kinds = {"gender": gender, "race": race, "religion": religion}
    write(tmp_path, **{f"{kind}_attributes_optm__json": content for kind, content in kinds.items()})
    expected = {
        "male_terms": ["he", "his"],
        "female_terms": ["she", "hers"],
        "male_roles": ["smith"],
        "female_roles": ["nurse"],
        "black_terms": ["africa", "black"],
        "white_terms": ["caucasian", "europe", "white"],
        "asian_terms": ["asia", "asian"],
        "black_biased_words": ["b"],
        "white_biased_words": ["c"],
        "asian_biased_words": ["a"],
        "judaism_terms": ["jew", "judaism"],
        "christianity_terms": ["christian", "christianity"],
        "islam_terms": ["islam", "muslim"],
        "greed": ["j"],
        "conservative": ["k"],
        "terrorism": ["m"],
        "gender_definitional_sets": gender["definite_sets"],
        "ethnicity_definitional_sets": race["definite_sets"],
        "religion_definitional_sets": religion["definite_sets"],
        "gender_analogy_templates": gender["analogy_templates"]["role"],
        "ethnicity_analogy_templates": race["analogy_templates"]["role"],
        "religion_analogy_templates": religion["analogy_templates"]["attribute"],
        "gender_eval_target": gender["eval_targets"],
        "ethnicity_eval_target": race["eval_targets"],
        "religion_eval_target": religion["eval_targets"],
    }
    sets = fetch_debias_multiclass(path=tmp_path)
    assert sets == expected and list(sets) == list(expected)


def test_fetch_gn_glove_reads_local_folder(tmp_path):
    write(tmp_path, male_word_file__txt="he\nmr.\n\n", female_word_file__txt="she\nher")
    assert fetch_gn_glove(path=tmp_path) == {"male_terms": ["he", "mr."], "female_terms": ["she", "her"]}


def test_fetch_local_folder_needs_no_network(tmp_path, network):
    with pytest.raises(FileNotFoundError):
        fetch_gn_glove(path=tmp_path)


@pytest.mark.parametrize(
    ("errors", "slept"),
    [
        ([], []),
        ([http(429), http(503), TimeoutError("slow")], [1, 2, 4]),
        ([OSError("reset"), ValueError("cut off")], [1, 1]),
    ],
)
def test_read_file_busy_host_is_retried(network, clock, logged, errors, slept):
    network += [*errors, b"words"]
    assert datasets.read_file("a/b/", "words.txt", None, 3, 30) == b"words"
    assert clock == slept and len(logged.messages) == len(slept)
    if slept[:2] == [1, 2]:
        assert logged.messages[0] == "HTTP Error 429: busy; trying again in 1 s (1 of 3)"


@pytest.mark.parametrize(
    ("errors", "slept", "why"),
    [
        ([http(404)], [], "HTTP Error 404: busy"),
        ([urllib.error.URLError("no such host")], [], "<urlopen error no such host>"),
        ([TimeoutError("slow")] * 3, [1, 2], "slow"),
    ],
)
def test_read_file_last_error_recommends_local_folder(network, clock, errors, slept, why):
    network += errors
    with raises(ConnectionError, f"{URL}: {why}; download the files and give their folder as path="):
        datasets.read_file("a/b/", "words.txt", None, 2, 30)
    assert clock == slept and network == []
