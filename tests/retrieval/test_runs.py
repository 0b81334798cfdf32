"""Runs and relevance judgments: hand-computed measures, TREC and BEIR files, similar names; RunMetric on tensors."""

import json
import math
import re

import pytest
import torch
from torchmetrics import retrieval as peers

from tensormetrics import compare
from tensormetrics.core.numbers import ranked
from tensormetrics.core.text.files import read_array
from tensormetrics.core.text.text_columns import split_fields
from tensormetrics.retrieval import Qrels, Run, RunMetric, evaluate_run
from tensormetrics.retrieval.functional import PositiveRanks, average_precision, ndcg
from tensormetrics.retrieval.runs import pairs, ranks
from tensormetrics.structured import RankingScores

OTHER = {"a": {"x": 1.0}}
RUN = {"q1": {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5}, "q2": {"x": 1.0, "y": 2.0}}
QRELS = {"q1": {"b": 2, "d": 1, "e": 1, "a": 0}, "q2": {"z": 1}, "q3": {"a": 1}}
BY_HAND = {  # for q1: ranking a, b, c, d with gains 0, 2, not judged, 1; three documents are relevant
    "map": (1 / 2 + 2 / 4) / 3,
    "map_cut_3": (1 / 2) / 3,
    "ndcg": (2 / math.log2(3) + 1 / math.log2(5)) / (2 + 1 / math.log2(3) + 1 / 2),
    "ndcg_cut_2": (2 / math.log2(3)) / (2 + 1 / math.log2(3)),
    "P_5": 2 / 5,
    "recall_2": 1 / 3,
    "success_1": 0.0,
    "success_5": 1.0,
    "Rprec": 1 / 3,
    "recip_rank": 1 / 2,
    "bpref": ((1 - 1 / 1) + (1 - 1 / 1)) / 3,  # one judged nonrelevant document ranks above both
    "set_P": 2 / 4,
    "set_recall": 2 / 3,
    "set_F": 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3),
    "gm_map": math.log((1 / 2 + 2 / 4) / 3),
    "11pt_avg": 8 * (1 / 2) / 11,  # two of three relevant documents: recall up to 0.7, as trec_eval rounds
    "iprec_at_recall_0.70": 1 / 2,
    "iprec_at_recall_0.80": 0.0,
    "ndcg_exp": (3 / math.log2(3) + 1 / math.log2(5)) / (3 + 1 / math.log2(3) + 1 / 2),
    "err": 3 / 16 / 2 + 13 / 16 * (1 / 16) / 4,
    "err_cut_2": 3 / 16 / 2,
    "rbp": 0.2 * (0.8 + 0.8**3),
    "judged_3": 2 / 3,
    "num_ret": 4.0,
    "num_rel": 3.0,
    "num_rel_ret": 2.0,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_measures_match_hand_computed_values(name):
    scores = evaluate_run(RUN, QRELS, [name])
    assert scores.queries == ["q1", "q2"]
    first, second = scores.values[name].tolist()
    assert first == pytest.approx(BY_HAND[name], abs=1e-15)
    assert second == pytest.approx({"num_ret": 2, "num_rel": 1, "gm_map": math.log(1e-5)}.get(name, 0))
    total = first + second
    if name == "gm_map":
        assert scores.summary()[name] == pytest.approx(math.exp(total / 2))
        return
    assert scores.summary()[name] == pytest.approx(total if name.startswith("num") else total / 2)


def values_of_doors():
    """Return average precision and nDCG of one ranking, with gains 0, 2, 0, 1 and two relevant documents."""
    rank, gain = torch.tensor([[2, 4]]), torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    ranks = PositiveRanks(rank, torch.tensor([2]), None, gain, gain)
    rows = RunMetric(("map", "ndcg"))
    rows.update(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 2, 0, 1]), torch.zeros(4, dtype=torch.int64))
    keys = RankingScores((1,), ("ap", "ndcg"))
    keys.update(torch.tensor([[0, 1, 2, 3]]), torch.tensor([[1, 3]]), ref_gain=gain)
    run = evaluate_run({"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}, {"q": {"b": 2, "d": 1}}, ["map", "ndcg"])
    return [
        (float(average_precision(ranks)), float(ndcg(ranks))),
        tuple(map(float, rows.compute().values())),
        tuple(float(keys.compute()[name]) for name in ("ap", "ndcg")),
        tuple(run.summary().values()),
    ]


def test_every_door_computes_scores_by_one_function(monkeypatch):
    expected = 1 / 2, (2 / math.log2(3) + 1 / math.log2(5)) / (2 + 1 / math.log2(3))
    assert values_of_doors() == [pytest.approx(expected, abs=1e-15)] * 4
    monkeypatch.setattr(ranked, "precision_term", lambda hits, rank: torch.zeros_like(hits + rank).double())
    assert [value[0] for value in values_of_doors()] == [0] * 4
    monkeypatch.setattr(ranked, "discounted", lambda gain, rank: gain + 0 * rank)
    assert [value[1] for value in values_of_doors()] == [1] * 4


def test_evaluate_run_options_change_queries_and_gains():
    complete = evaluate_run(RUN, QRELS, "map", complete=True)
    assert complete.queries == ["q1", "q2", "q3"] and complete.values["map"].tolist()[2] == 0
    assert evaluate_run(RUN, QRELS, ["recip_rank"], relevance_level=1, judged_only=True).values["recip_rank"][0] == 0.5
    judged = evaluate_run(RUN, QRELS, ["P_2", "map"], judged_only=True)  # a, b, d
    assert judged.values["map"][0] == pytest.approx((1 / 2 + 2 / 3) / 3)
    strict = evaluate_run(RUN, QRELS, ["map", "ndcg"], relevance_level=2)
    assert strict.values["map"][0] == 1 / 2 and strict.values["ndcg"][0] == pytest.approx(BY_HAND["ndcg"])
    assert set(evaluate_run(RUN, QRELS, ["success"]).values) == {"success_1", "success_5", "success_10"}


@pytest.mark.parametrize("gain", [-1, -2])
def test_judged_only_drops_documents_of_negative_gain(gain):
    run, qrels = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": gain, "c": 1}}
    dropped = evaluate_run(run, qrels, ["map", "num_ret", "bpref"], judged_only=True)
    assert dropped.summary() == {"map": 1.0, "num_ret": 1.0, "bpref": 1.0}
    assert evaluate_run(run, qrels, ["map"]).summary() == {"map": 1 / 3}
    never_judged = evaluate_run(run, {"q": {"c": 1}}, ["map", "num_ret", "bpref"], judged_only=True)
    assert dropped.summary() == never_judged.summary()


def test_equal_float32_scores_are_ordered_by_name():
    qrels = {"q": {"d10": 1}}
    assert evaluate_run({"q": {"d10": 1.0, "d9": 1.0, "d1": 1.0}}, qrels, "recip_rank").values["recip_rank"] == 1 / 2
    close = {"q": {"d10": 1.0 + 1e-12, "d9": 1.0}}  # equal in float32
    assert evaluate_run(close, qrels, "recip_rank").values["recip_rank"] == 1 / 2
    assert evaluate_run({"q": {"d10": 0.0, "d9": -0.0}}, qrels, "recip_rank").values["recip_rank"] == 1 / 2
    overflowing = {"q": {"d10": 1e300, "d9": 1e299}}  # both infinite in float32
    assert evaluate_run(overflowing, qrels, "recip_rank").values["recip_rank"] == 1 / 2
    signs = {"q": {"d10": -1.0, "d9": -2.0, "d1": 3.0, "d2": -math.inf, "d3": math.inf}}
    assert evaluate_run(signs, qrels, "recip_rank").values["recip_rank"] == 1 / 3


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return tmp_path / name

    return write


LINES = [f"{q} Q0 {d} {r} {s} tag" for q, documents in RUN.items() for r, (d, s) in enumerate(documents.items())]
JUDGED = [f"{q} 0 {d} {g}" for q, gains in QRELS.items() for d, g in gains.items()]
BEIR = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{g}" for q, gains in QRELS.items() for d, g in gains.items())]


@pytest.mark.parametrize("change", [
    lambda text: text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: "\ufeff" + text,
    lambda text: "\n\n" + text.replace("\n", "\n \t\n", 2).rstrip(),
    lambda text: text.replace(" ", "\t\t"),
])  # fmt: skip
@pytest.mark.parametrize("judged", [JUDGED, BEIR, BEIR[1:]])
def test_run_files_in_format_variants_match_hand_computed(write, change, judged):
    run, qrels = write("run.txt", change("\n".join(LINES) + "\n")), write("qrels.txt", change("\n".join(judged) + "\n"))
    scores = evaluate_run(run, str(qrels), tuple(BY_HAND))
    assert {name: value[0].item() for name, value in scores.values.items()} == pytest.approx(BY_HAND, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 2.5\n", "run.txt, line 1: got 5 fields, wanted 6: query - document - score -"),
        ("\nq Q0 d 1 2.5 t\nq Q0 e 1 2.5 t more\n", "run.txt, line 3: got 7 fields"),
        ("q Q0 d 1 2.5 t\nq Q0 e 1 two t\n", "run.txt, line 2: got the score 'two', wanted a number"),
        ("q Q0 d 1 2.5 t\nq Q0 e 1 nan t\n", "run.txt, line 2: got the score 'nan', wanted a number"),
        ("q Q0 d 1 1_0 t\n", "run.txt, line 1: got the score '1_0', wanted a number"),
        ("q Q0 d 1 2.5 t\nq Q0 d 1 2.5 t\n", "run.txt: got the document 'd' twice for the query 'q'"),
        (f"q Q0 {'d' * 600} 1 2.5 t\n", "run.txt: got a field of 600 bytes, wanted at most 512"),
        ("q 0 d 1\nq 0 d\n", "qrels.txt, line 2: got 3 fields, wanted 4: query - document gain"),
        ("q 0 d 0.5\n", "qrels.txt: got the gain '0.5' for 'd', wanted an integer"),
        ("q 0 d 1e300\n", "qrels.txt: got the gain '1e300' for 'd', wanted an integer"),
        ("q 0 d x\n", "qrels.txt, line 1: got the gain 'x', wanted a number"),
        ("q 0 d 1\nq 0 d 0\n", "qrels.txt: got the document 'd' twice for the query 'q'"),
    ],
)
def test_malformed_files_raise_value_error(write, text, message):
    file = write(message.split(".")[0] + ".txt", text)
    with pytest.raises(ValueError, match=message.replace("'", ".")):
        (Run if file.name == "run.txt" else Qrels).read(file)


def test_largest_gain_is_read(write):
    assert Qrels.read(write("qrels.txt", "q 0 d 9007199254740992\n")).value.tolist() == [2**53]


ALIASES = {  # of ir_measures, ranx and trec_eval
    "ndcg_cut_10": ["nDCG@10"],
    "ndcg_cut_3": ["ndcg@3"],
    "ndcg": ["nDCG"],
    "map_cut_100": ["map@100"],
    "map_cut_3": ["AP@3"],
    "map": ["AP"],
    "recip_rank": ["MRR", "RR"],
    "recip_rank_cut_1": ["mrr@1"],
    "recall_100": ["recall@100"],
    "recall_2": ["R@2"],
    "P_3": ["precision@3", "P@3"],
    "success_7": ["hit_rate@7", "Success@7"],
    "Rprec": ["r-precision"],
    "bpref": ["Bpref"],
    "set_F": ["f1"],
    "set_P": ["precision"],
    "set_recall": ["SetR"],
    "iprec_at_recall_0.70": ["IPrec@0.7"],
    "ndcg_exp": ["ndcg_burges", "nDCG(dcg='exp-log2')"],
    "ndcg_exp_cut_2": ["ndcg_burges@2"],
    "err_cut_2": ["ERR@2"],
    "rbp": ["rbp.8", "RBP(p=0.8)", "RBP(p=0.8)@4"],
    "judged_3": ["Judged@3"],
}


@pytest.mark.parametrize("trec_name", ALIASES)
def test_measure_aliases_of_other_packages_match_trec_names(trec_name):
    for name in ALIASES[trec_name]:
        scores = evaluate_run(RUN, QRELS, [name, trec_name])
        assert [*scores.values] == [name, trec_name]
        assert torch.equal(scores.values[name], scores.values[trec_name])


def test_measure_depths_after_dot_match_trec_eval():
    scores = evaluate_run(RUN, QRELS, ["P.1,3", "ndcg_cut.3"])
    assert [*scores.values] == ["P_1", "P_3", "ndcg_cut_3"]
    assert scores.values["P_3"][0] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "name", ["hits@3", "f1@3", "mrr@0", "P.", "P.0", "P.a", "ndcg@", "AP(rel=2)@10", "P(rel=2)@10"]
)
def test_unsupported_measure_names_are_rejected(name):
    with pytest.raises(ValueError, match=r"metrics: got '.*', wanted some of map, .*") as error:
        evaluate_run(RUN, QRELS, [name])
    assert "(" not in name or "perhaps" not in str(error.value)  # of another measure


SWAPPED = (
    r"run, qrels: the run looks like judgements .*; if they are swapped, write evaluate_run\(run=\.\.\., qrels=\.\.\.\)"
)


@pytest.mark.parametrize(
    "run",
    [
        {"q": {"a": 3.0, "b": 2.0, "c": 1.0}},  # floats
        {"q": {"a": 5, "b": 4, "c": 3, "d": 2, "e": 1}},  # ranks
    ],
)
def test_swapped_run_and_qrels_dicts_warn(run):
    judgements = {"q": {"a": 1, "b": 0, "c": 0}}
    with pytest.warns(UserWarning, match=SWAPPED):
        evaluate_run(judgements, run)
    evaluate_run(run, judgements)  # warnings are errors in tests
    evaluate_run(qrels=judgements, run=run, metrics=["map"])  # argument names and order of ranx
    evaluate_run(judgements, judgements)


RUN_OF_FORMS = {"q1": {"d1": 3.5, "d2": 2.5, "d3": 1.0}, "q2": {"d4": 1.5, "d1": 0.5}}
RANKS_OF_FORMS = [(q, d, i) for q, documents in RUN_OF_FORMS.items() for i, d in enumerate(documents, 1)]
ROWS_OF_FORMS = [(q, d, score) for q, documents in RUN_OF_FORMS.items() for d, score in documents.items()]
FORMS_OF_RUN = {
    "run.trec": "".join(f"{q} Q0 {d} 1 {score} tag\n" for q, d, score in ROWS_OF_FORMS),
    "run.json": json.dumps(RUN_OF_FORMS, indent=1),
    "line.json": json.dumps(RUN_OF_FORMS),
    "column.json": json.dumps(RUN_OF_FORMS).replace("{", "\n{"),
    "rows.jsonl": "".join(json.dumps({"qid": q, "docno": d, "score": s}) + "\n" for q, d, s in ROWS_OF_FORMS),
    "lists.json": json.dumps({q: [*documents] for q, documents in RUN_OF_FORMS.items()}),
    "run.csv": "query,document,score\n" + "".join(f"{q},{d},{score}\n" for q, d, score in ROWS_OF_FORMS),
    "comma.csv": "qid;pid;Score\n" + "".join(f"{q};{d};{score:,}\n".replace(".", ",") for q, d, score in ROWS_OF_FORMS),
    "run.tsv": "docno\tqid\trank\tscore\n" + "".join(f"{d}\t{q}\t1\t{score}\n" for q, d, score in ROWS_OF_FORMS),
    "rank.tsv": "qid\tdocno\trank\n" + "".join(f"{q}\t{d}\t{rank}\n" for q, d, rank in RANKS_OF_FORMS),
    "marco.tsv": "".join(f"{q}\t{d}\t{rank}\n" for q, d, rank in RANKS_OF_FORMS),
    "three.txt": "".join(f"{q} {d} {score}\n" for q, d, score in ROWS_OF_FORMS),
}
QRELS_OF_FORMS = {"q1": {"d2": 2, "d3": 0}, "q2": {"d1": 1}}
FORMS_OF_QRELS = {
    "qrels.trec": "q1 0 d2 2\nq1 0 d3 0\nq2 0 d1 1\n",
    "qrels.json": json.dumps(QRELS_OF_FORMS),
    "short.json": json.dumps({"q1": {"d2": 2}, "q2": {"d1": 1}}, indent=0),
    "qrels.csv": "query,document,gain\nq1,d2,2\nq1,d3,0\nq2,d1,1\n",
    "beir.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td3\t0\nq2\td1\t1\n",
}
WRONG_RUNS = {
    "beir.tsv": (FORMS_OF_QRELS["beir.tsv"], ": got judgements (query-id corpus-id score), wanted a run; were the two"),
    "gains.txt": ("q d 1\nq e 1\n", ": got judgements (query 0 document gain), wanted a run; were the two swapped?"),
    "heading.csv": ("qid,docno,relevance\nq,d,1\n", ": got the columns qid, docno, relevance, wanted one of values: "),
    "row.csv": ("qid,docno,score\nq,d\n", ", line 2: got 2 columns, wanted 3 as above"),
    "word.csv": ("qid,docno,score\nq,d,high\n", ", line 2: got the score 'high', wanted a number"),
    "broken.json": ('{"q": {"d": 1', ": "),
    "row.jsonl": ('{"qid": "q", "docno": "d"}\n', ": got the columns qid, docno, wanted one of values: "),
    "empty.json": ("[]", ": got an empty list, wanted at least one row"),
}


@pytest.mark.parametrize("name", FORMS_OF_RUN)
def test_run_in_any_form_has_the_same_scores(name, tmp_path):
    (tmp_path / name).write_text(FORMS_OF_RUN[name])
    expected = evaluate_run(RUN_OF_FORMS, QRELS_OF_FORMS, ["map", "ndcg"]).summary()
    assert evaluate_run(tmp_path / name, QRELS_OF_FORMS, ["map", "ndcg"]).summary() == expected


@pytest.mark.parametrize("name", FORMS_OF_QRELS)
def test_judgements_in_any_form_have_the_same_scores(name, tmp_path):
    (tmp_path / name).write_text(FORMS_OF_QRELS[name])
    expected = evaluate_run(RUN_OF_FORMS, QRELS_OF_FORMS, ["map", "ndcg"]).summary()
    assert evaluate_run(RUN_OF_FORMS, tmp_path / name, ["map", "ndcg"]).summary() == expected


def test_frames_and_lists_are_runs():
    pd = pytest.importorskip("pandas")
    expected = evaluate_run(RUN_OF_FORMS, QRELS_OF_FORMS, ["map"]).summary()
    run = pd.DataFrame(ROWS_OF_FORMS, columns=["query", "document", "score"])
    qrels = pd.DataFrame([("q1", "d2", 2), ("q1", "d3", 0), ("q2", "d1", 1)], columns=["qid", "docno", "rel"])
    lists = {query: [*documents] for query, documents in RUN_OF_FORMS.items()}
    for form in run, run.rename(columns={"score": "rank"}).assign(rank=[rank for *_, rank in RANKS_OF_FORMS]), lists:
        assert evaluate_run(form, qrels, ["map"]).summary() == expected


@pytest.mark.parametrize("name", WRONG_RUNS)
def test_other_tables_are_no_runs(name, tmp_path):
    text, message = WRONG_RUNS[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path / name) + message)}"):
        Run.read(tmp_path / name)


@pytest.mark.parametrize("aggregation", ["median", "min", "max", lambda values, dim: values.square().sum(dim)])
def test_aggregation_of_queries_is_that_of_torchmetrics(aggregation):
    preds, target = torch.rand(200, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 3 == 0
    indexes = torch.arange(200) // 10
    ours, theirs = RunMetric(["map"], aggregation=aggregation), peers.RetrievalMAP(aggregation=aggregation)
    for metric in ours, theirs:
        metric.update(preds, target, indexes=indexes)
    assert float(ours.compute()["map"]) == pytest.approx(float(theirs.compute()), abs=1e-6)
    with pytest.raises(NotImplementedError, match="has no interval; write 'mean'$"):
        ours.interval()


def test_wrong_types_of_runs_and_qrels_raise_error():
    with pytest.raises(TypeError, match="run: got a list, wanted a dict of queries of dicts of documents"):
        Run([("q", "d")])
    with pytest.raises(TypeError, match=r"run, qrels: got a Qrels as the run and a Run as judgements; write eval"):
        evaluate_run(Qrels({"q": {"a": 1}}), Run({"q": {"a": 0.5}}))
    with pytest.raises(ValueError, match=r"qrels: got 0.5 for 'q', 'a', wanted int; scores go into the run: write"):
        evaluate_run({"q": {"a": 1}}, {"q": {"a": 0.5}})


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"metrics: got 'ndgc', wanted some of map, .*; perhaps 'ndcg'", lambda: evaluate_run(RUN, QRELS, ["ndgc"])),
        ("metrics: got none, wanted at least one name", lambda: evaluate_run(RUN, QRELS, [])),
        ("run, qrels: no query is in both; their names begin with 'a', 'q1', 'q2'", lambda: evaluate_run(OTHER, QRELS)),
        ("run: got nan for 'q', 'd', wanted float", lambda: Run({"q": {"d": math.nan}})),
        ("run: got 'x' for 'q', 'd', wanted float", lambda: Run({"q": {"d": "x"}})),
        ("run: got None for 'q', 'd', wanted float", lambda: Run({"q": {"d": None}})),
        *(
            (f"qrels: got {got} for 'q', 'd', wanted int", lambda gain=gain: Qrels({"q": {"d": gain}}))
            for got, gain in (("0.5", 0.5), (".*", math.nan), (".*", math.inf), (".*", 10**30))
        ),
        (
            "scores: got NaN, wanted numbers; -inf leaves a document out",
            lambda: Run.from_scores(torch.full((1, 1), math.nan)),
        ),
        ("documents: got 1 names, wanted at least 2", lambda: Run.from_scores(torch.zeros(1, 2), documents=["a"])),
        ("queries: got 1 names, wanted 2", lambda: Run.from_scores(torch.zeros(2, 2), queries=["a"])),
        ("queries: got names that are not distinct", lambda: Run.from_scores(torch.zeros(2, 2), queries=["a", "a"])),
        ("indices: got torch.float32, wanted an integer dtype", lambda: Run.from_top_k(*torch.ones(2, 1, 1))),
    ],
)
def test_invalid_runs_and_qrels_raise_errors(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_run_from_tensors_matches_dict(device):
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.5], [1.0, 2.0, -torch.inf, -torch.inf]], device=device)
    run = Run.from_scores(scores, ["q1", "q2"], ["a", "b", "c", "d"])
    assert len(run) == 6 and repr(run) == "<run of 6 documents for 2 queries>"
    values = evaluate_run(run, QRELS, tuple(BY_HAND)).values
    assert {name: value[0].item() for name, value in values.items()} == pytest.approx(BY_HAND, abs=1e-15)
    top = scores.topk(4)
    again = evaluate_run(Run.from_top_k(*top, ["q1", "q2"], ["a", "b", "c", "d", "e"]), QRELS, tuple(BY_HAND)).values
    assert all(torch.equal(values[name], again[name]) for name in values)
    numbered = Run.from_top_k(torch.tensor([[2.0, 1.0]]), torch.tensor([[7, -1]]))
    assert evaluate_run(numbered, {"0": {"7": 1}}, ["P_1", "num_ret"]).summary() == {"P_1": 1, "num_ret": 1}


def test_hash_collisions_of_names_change_nothing(monkeypatch):
    monkeypatch.setattr(pairs, "MIX", 0)  # all documents of a query get the same hash
    monkeypatch.setattr(pairs, "hash_of", lambda name: 0)  # and so do all queries
    values = evaluate_run(RUN, QRELS, tuple(BY_HAND)).values
    assert {name: value[0].item() for name, value in values.items()} == pytest.approx(BY_HAND, abs=1e-15)
    with pytest.raises(ValueError, match="twice"):
        Run.from_top_k(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.int64))


def test_names_of_any_length_are_matched():
    names = ["d", "d" * 8, "d" * 9, "dé" * 20]
    run = {"q": {name: float(i) for i, name in enumerate(names)}}
    for i, name in enumerate(names):
        assert evaluate_run(run, {"q": {name: 1}}, "recip_rank").values["recip_rank"] == 1 / (4 - i)


def test_long_files_split_between_threads_are_read_exactly(write):
    lines = [f"q{i % 7} Q0 document-{i} 1 {i}.5e-3 t" for i in range(120_000)]
    path = write("long.txt", "\n\n".join(lines))  # about 4 MB
    query, document, score = split_fields(read_array(path), path, ("query", "-", "document", "-", "score", "-"))
    values, wrong = score.parse_numbers()
    assert len(values) == len(lines) and not len(wrong) and values[-1] == 119_999.5e-3
    assert [query[0], query[8], document[77_777]] == ["q0", "q1", "document-77777"]
    path = write("wrong.txt", "\n\n".join([*lines[:100_000], "q Q0", *lines[100_000:]]))
    with pytest.raises(ValueError, match="line 200001: got 2 fields, wanted 6"):
        Run.read(path)


@pytest.mark.parametrize("field", ["1", "+1", "-0", "1e5", ".5", "5.", "inf", "-Infinity", "1e400", "1e-400", "4e-320",
                                   "0.1000000000000000055511151231257827", "++1", "+-1", "1_0", "0x10", "1,5", "1.2.3",
                                   "nan(1)", "-", "-1234567.12345678", "12345678", "0.1234567890123456"])  # fmt: skip
def test_parsed_numbers_match_python_float(write, field):
    path = write("x.txt", f"{field}\n{'':30}\n{field}")  # the second is too close to the end to be read eight by eight
    (column,) = split_fields(read_array(path), path, ("number",))
    values, wrong = column.parse_numbers()
    try:
        expected = float(field) if "_" not in field else None
    except ValueError:
        expected = None
    assert wrong.tolist() == ([0, 1] if expected is None else [])
    assert expected is None or [*map(str, values.tolist())] == [str(expected)] * 2  # 0 and -0 differ


def test_run_without_documents_scores_zero():
    scores = evaluate_run({"q": {}}, {"q": {"a": 1}}, tuple(BY_HAND))
    assert {name: value.tolist() for name, value in scores.values.items()} == {
        name: [{"num_rel": 1.0, "gm_map": math.log(1e-5)}.get(name, 0.0)] for name in BY_HAND
    }
    nothing_relevant = evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 0}}, tuple(BY_HAND)).summary()
    expected = {"num_ret": 1, "judged_3": 1, "gm_map": pytest.approx(1e-5)}
    assert {name: nothing_relevant.pop(name) for name in expected} == expected
    assert not any(nothing_relevant.values())


NAMES = *("map", "map_cut_5", "ndcg", "ndcg_cut_5", "recip_rank", "Rprec"), *("P_5", "recall_5", "success_5", "bpref")
NAMES += ("num_rel",)


def rows(generator, queries=12, documents=15, ties=True):
    """Return scores with ties, graded targets, indexes, documents; rows are shuffled, one query has no relevant one."""
    n = queries * documents
    scores = torch.randn(n, generator=generator)
    scores = (2 * scores).round() / 2 if ties else scores
    target = torch.randint(0, 3, (n,), generator=generator) * (torch.rand(n, generator=generator) < 0.4)
    indexes = torch.arange(queries).repeat_interleave(documents) * 3 + 7
    target[indexes == 7] = 0
    documents = torch.arange(documents).repeat(queries) + 100  # equal lengths, so that names sort like the numbers
    order = torch.randperm(n, generator=generator)
    return scores[order], target[order], indexes[order], documents[order]


def run_and_qrels(scores, target, indexes, documents):
    run, qrels = {}, {}
    for score, gain, query, document in zip(*(x.tolist() for x in (scores, target, indexes, documents)), strict=True):
        run.setdefault(str(query), {})[str(document)] = score
        qrels.setdefault(str(query), {})[str(document)] = gain
    return run, qrels


@pytest.mark.parametrize("level", [1, 2])
def test_run_metric_scores_match_evaluate_run(level, generator, device):
    data = rows(generator)
    expected = evaluate_run(*run_and_qrels(*data), NAMES, relevance_level=level)
    metric = RunMetric(NAMES, relevance_level=level).to(device)
    for batch in torch.arange(len(data[0])).split(37):
        metric.update(*(column[batch].to(device) for column in data))
    by_query = metric.per_query()
    positions = [by_query.queries.index(int(query)) for query in expected.queries]
    for name in NAMES:
        assert torch.equal(by_query.values[name][positions], expected.values[name]), name
        assert float(metric.compute()[name]) == pytest.approx(expected.summary()[name]), name
    assert metric.compute()["map"].device.type == device.type


def test_queries_of_very_different_lengths_are_scored_in_small_tables(generator, monkeypatch):
    scores, target, indexes, documents = rows(generator)
    kept = torch.rand(len(scores), generator=generator) < 0.1 + 0.9 * (indexes % 2)
    data = [column[kept] for column in (scores, target, indexes, documents)]
    metric, parts = RunMetric((*NAMES, "num_ret"), top_k=9), RunMetric((*NAMES, "num_ret"), top_k=9)
    metric.update(*data)
    expected = metric.compute()
    monkeypatch.setattr(ranks, "MAX_PADDING", (0, 0))
    parts.update(*data)
    assert {name: float(value) for name, value in parts.compute().items()} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, abs=1e-15
    )


@pytest.mark.parametrize("action", ["neg", "pos", "skip"])
def test_run_metric_scores_match_torchmetrics(action, generator):
    scores, target, indexes, _ = rows(generator, ties=False)
    scores = scores.sigmoid()  # RetrievalMAP treats documents with scores <= 0 as irrelevant
    options = {"empty_target_action": action}
    metrics = {
        "map": peers.RetrievalMAP(**options),
        "recip_rank": peers.RetrievalMRR(**options),
        "P_5": peers.RetrievalPrecision(top_k=5, **options),
        "recall_5": peers.RetrievalRecall(top_k=5, **options),
        "success_5": peers.RetrievalHitRate(top_k=5, **options),
        "Rprec": peers.RetrievalRPrecision(**options),
    }
    metric = RunMetric((*metrics, "ndcg_cut_5"), **options)
    metric.update(scores, target, indexes)
    values = metric.compute()
    for name, peer in metrics.items():
        peer.update(scores, target.bool().long(), indexes)
        assert float(values[name]) == pytest.approx(float(peer.compute())), name
    graded = peers.RetrievalNormalizedDCG(top_k=5, **options)
    graded.update(scores, target, indexes)
    assert float(values["ndcg_cut_5"]) == pytest.approx(float(graded.compute()))


def test_run_metric_depths_and_ties_match_hand_computed():
    """Query 5 has documents 1, 2, 3, 4 with scores 3, 2, 2, 1; documents 2 and 4 are relevant."""
    data = torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 1]), torch.full((4,), 5)
    in_order, by_name, top_2 = RunMetric("map"), RunMetric("map"), RunMetric(("map", "num_ret"), top_k=2)
    in_order.update(*data)  # ranks 2 and 4
    by_name.update(*data, torch.tensor([1, 2, 3, 4]))  # document 3 before 2: ranks 3 and 4
    top_2.update(*data)  # only rank 2 of two relevant documents
    assert float(in_order.compute()["map"]) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert float(by_name.compute()["map"]) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert float(top_2.compute()["map"]) == pytest.approx((1 / 2) / 2) and float(top_2.compute()["num_ret"]) == 2


def test_ignore_index_rows_are_excluded(generator):
    scores, target, indexes, documents = rows(generator)
    ignored = torch.rand(len(scores), generator=generator) < 0.3
    metric, expected = RunMetric(NAMES, ignore_index=-100), RunMetric(NAMES)
    metric.update(scores, target.masked_fill(ignored, -100), indexes, documents)
    expected.update(*(column[~ignored] for column in (scores, target, indexes, documents)))
    assert {k: float(v) for k, v in metric.compute().items()} == {k: float(v) for k, v in expected.compute().items()}


def test_interval_matches_per_query_scores_in_any_row_order(generator):
    data = rows(generator)
    metric, shuffled = RunMetric(NAMES), RunMetric(NAMES)
    metric.update(*data)
    order = torch.randperm(len(data[0]), generator=generator)
    for batch in order.split(50):
        shuffled(*(column[batch] for column in data))
    intervals, expected = metric.interval(), metric.per_query().interval()
    assert "num_rel" not in intervals and intervals["map"].items == 12
    for name, estimate in intervals.items():
        for other in (expected[name], shuffled.interval()[name]):
            assert all(map(torch.equal, estimate, other)), name
    groups = data[2] // 6
    grouped = RunMetric(NAMES)
    grouped.update(*data, groups=groups)
    assert grouped.interval()["map"].groups == len(groups.unique()) < 12


def test_compare_run_metrics_pairs_queries(generator):
    scores, target, indexes, documents = rows(generator)
    better = scores + 2 * target
    metrics = {name: RunMetric(("map", "P_5")) for name in ("base", "better")}
    for metric, preds in zip(metrics.values(), (scores, better), strict=True):
        metric.update(preds, target, indexes, documents)
    result = compare(metrics["better"], metrics["base"])["map"]
    one, other = (metric.per_query() for metric in metrics.values())
    expected = compare(other, one)["map"]
    assert [*map(float, result)] == [*map(float, expected)] and result.verdict == "better"
    assert compare(metrics, baseline="base")["better", "map"] == float(other.summary()["map"])
    others = RunMetric(("map", "P_5"))
    others.update(scores, 1 - target.clamp(max=1), indexes, documents)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metrics["base"], others)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"preds": torch.arange(4)}, ValueError, "preds: "),
        ({"target": torch.ones(3)}, ValueError, "target: "),
        ({"indexes": torch.zeros(3).long()}, ValueError, "indexes: "),
        ({"doc_ids": torch.tensor([1, 1, 2, 3])}, ValueError, "doc_ids: query 0 has document 1 twice"),
        ({"preds": torch.full((4,), torch.nan)}, ValueError, "preds: got NaN for query 0, wanted numbers"),
        ({"groups": [0, 1, 0, 0]}, ValueError, "groups: got several for query 0, wanted one"),
    ],
)
def test_invalid_rows_raise_value_error(change, error, message):
    metric = RunMetric()
    data = {"preds": torch.rand(4), "target": torch.ones(4).long(), "indexes": torch.zeros(4).long()}
    with pytest.raises(error, match=f"^{message}"):
        metric.update(**(data | change))
        metric.compute()


def test_invalid_options_and_mixed_rows_raise_value_error():
    for options, message in (
        ({"metrics": ()}, "metrics: got none"),
        ({"metrics": "mapp"}, "mapp"),
        ({"empty_target_action": "zero"}, "empty_target_action: got 'zero'"),
        ({"top_k": 0}, "top_k: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            RunMetric(**options)
    metric, data = RunMetric(empty_target_action="error"), (torch.rand(4), torch.zeros(4).long(), torch.zeros(4).long())
    metric.update(*data)
    with pytest.raises(ValueError, match="target: query 0 has no relevant document"):
        metric.compute()
    with pytest.raises(ValueError, match="metrics: got num_rel, wanted at least one mean for an interval"):
        counts = RunMetric("num_rel")
        counts.update(*data)
        counts.interval()


def test_batches_of_queries_and_fractional_gains_equal_torchmetrics():
    preds, target = torch.tensor([[0.1, 0.2, 0.3], [0.8, 0.1, 0.05]]), torch.tensor([[0, 1, 0], [1, 0, 0]])
    queries, expected = torch.tensor([[0] * 3, [1] * 3]), peers.RetrievalNormalizedDCG()
    for gains in (target, target > 0, target * 0.25 + torch.tensor([0.0, 0.5, 0.125])):
        metric, rows = RunMetric("ndcg"), RunMetric("ndcg")
        metric.update(preds, gains, indexes=queries)
        rows.update(preds.flatten(), gains.flatten(), indexes=queries.flatten())
        assert metric.compute() == rows.compute()
        value = expected(preds.flatten(), gains.flatten(), indexes=queries.flatten())
        assert float(metric.compute()["ndcg"]) == pytest.approx(float(value), abs=1e-6)
    with pytest.raises(ValueError, match=r"^indexes: got shape \(6,\), wanted \(2, 3\)"):
        metric.update(preds, target, indexes=queries.flatten())
    metric.update(preds[0], torch.tensor([0.5, torch.nan, 0.0]), indexes=queries[1] + 1)
    with pytest.raises(ValueError, match="^target: got NaN for query 2, wanted numbers"):
        metric.compute()


@pytest.mark.parametrize("name", ["doc_ids", "groups"])
def test_rows_with_and_without_names_cannot_be_mixed(name):
    data = torch.rand(4), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    named = {name: torch.tensor([3, 3, 5, 5]) if name == "groups" else torch.arange(4)}
    metric, other = RunMetric(), RunMetric()
    metric.update(*data)
    other.update(*data, **named)
    before = metric.compute()
    for mix in (
        lambda: metric.update(*data, **named),
        lambda: metric(*data, **named),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(
            ValueError, match=f"^{name}: got some after rows that have none; give them always or never$"
        ):
            mix()
    assert all(map(torch.equal, metric.compute().values(), before.values())) and len(metric.preds) == 4
    metric.doc_ids = torch.arange(3)  # as if one rank had passed fewer
    metric._computed = None
    with pytest.raises(ValueError, match="^doc_ids: got 3 for 4 rows; give them always or never$"):
        metric.compute()
