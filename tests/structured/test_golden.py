"""The scores against golden values."""

import json
from pathlib import Path

import pytest
import torch
from test_tags import spans_of

from tensormetrics import structured
from tensormetrics.structured import functional
from tensormetrics.structured.suites.entities.spans import SCHEMES

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
CONSTRAINTS = ("<->", "->", "<-", "~")


def golden(group: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", GOLDEN[group], ids=[case["id"] for case in GOLDEN[group]])


def close(got: dict, expected: dict) -> None:
    for name, value in expected.items():
        value = float("nan") if value is None else value
        assert float(got[name]) == pytest.approx(value, abs=1e-9, nan_ok=True), name


def keys_of(items: list) -> torch.Tensor:
    """Numbers for the items, equal for equal ones; rows stay rows."""
    keys = [hash(item) if isinstance(item, str) else item for item in items]
    return torch.tensor(keys, dtype=torch.int64)


@golden("multiset")
def test_multiset_overlap_golden_cases_match(case, device):
    pred, ref = (keys_of(case["input"][role]).to(device) for role in ("pred", "ref"))
    columns = max(pred.ndim, ref.ndim) > 1
    for constraint, expected in case["output"].items():
        result = functional.multiset_overlap(pred, ref, constraint=constraint, columns=columns)
        close(result._asdict(), dict(zip(("cross", "pred", "ref"), list(expected.values())[:3], strict=True)))
        overlap = [part.double() for part in result]
        names = [name for name in expected if not name.endswith(("self", "overlap"))]
        close({name: functional.normalize(*overlap, name) for name in names}, {n: expected[n] for n in names})


@golden("soft")
def test_set_overlap_golden_cases_match(case, device):
    similarity = torch.tensor(case["input"]["similarity"], dtype=torch.float64, device=device)
    close(
        {c: functional.set_overlap(similarity, constraint=c) for c in CONSTRAINTS},
        {c: case["output"][c] for c in CONSTRAINTS},
    )
    if (pairs := case["output"]["pairs"]) is not None:
        result = functional.set_overlap(similarity, return_pairs=True)
        assert [[i, j] for i, j in enumerate(result.ref_of_pred.tolist()) if j >= 0] == pairs
        assert sorted([i, j] for j, i in enumerate(result.pred_of_ref.tolist()) if i >= 0) == sorted(pairs)


@golden("soft_batch")
def test_set_overlap_golden_batches_match(case, device):
    similarity = torch.tensor(case["input"]["similarity"], dtype=torch.float64, device=device)
    lengths = [torch.tensor(case["input"][name], device=device) for name in ("n_pred", "n_ref")]
    for constraint in CONSTRAINTS:
        result = functional.set_overlap(similarity, *lengths, constraint)
        assert result.tolist() == pytest.approx(case["output"][constraint], abs=1e-9)


@golden("soft_self")
def test_set_match_solved_self_overlaps_match_golden(case):
    similarity = torch.tensor(case["input"]["similarity"], dtype=torch.float64)
    pred, ref = case["input"]["pred_items"], case["input"]["ref_items"]
    for constraint, expected in case["output"].items():
        self_overlaps = [functional.set_overlap(similarity[x][:, x], constraint=constraint) for x in (pred, ref)]
        scores = ("none", "precision", "recall", "jaccard", "f1", "f0.5", "f2")
        metric = structured.SetMatch(constraint, scores)
        metric.update(similarity[pred][:, ref], pred_self=self_overlaps[0], ref_self=self_overlaps[1])
        close(metric.compute(), {name: value for name, value in expected.items() if not name.endswith("self")})


@golden("policy")
@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("policy", ["conventional", "agree", "metametric"])
def test_multiset_match_golden_policies_match(case, policy, average):
    expected = case["output"][policy][average]
    metric = structured.MultisetMatch(scores=tuple(expected), average=average, policy=policy)
    for pred, ref in case["input"]["documents"]:
        metric.update(keys_of(pred), keys_of(ref))
    close(metric.compute(), expected)


@golden("sequence")
def test_sequence_overlap_golden_cases_match(case, device):
    inputs = case["input"]
    rows = inputs.get("similarity") or [[float(p == r) for r in inputs["ref"]] for p in inputs["pred"]]
    shape = (len(rows), len(rows[0]) if rows else len(inputs["ref"]))
    similarity = torch.tensor(rows, dtype=torch.float64, device=device).reshape(shape)
    for constraint, expected in case["output"].items():
        result = functional.sequence_overlap(similarity, constraint=constraint)
        assert float(result) == pytest.approx(expected["overlap"] if isinstance(expected, dict) else expected, abs=1e-9)


@golden("coref")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("micro", {}),
        ("macro", {"average": "macro"}),
        ("micro_drop_singletons", {"singletons": "drop"}),
        ("macro_agree", {"average": "macro", "zero_division": "agree"}),
    ],
)
def test_coref_scores_golden_cases_match(case, name, options, device):
    metric = structured.CorefScores(**options).to(device)
    documents = case["input"]["documents"]
    metric.update_clusters([d["pred"] for d in documents], [d["ref"] for d in documents])
    assert metric.compute().keys() == case["output"][name].keys()
    close(metric.compute(), case["output"][name])


@golden("large_coref")
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_coref_scores_large_golden_case_matches(case, average, device):
    metric = structured.CorefScores(average=average).to(device)
    inputs = case["input"]
    d, m = torch.arange(inputs["documents"])[:, None].numpy(), torch.arange(inputs["mentions"]).numpy()
    pred = torch.from_numpy((m * m + 3 * m * d + d) % 40).where(torch.from_numpy((m + d) % 9 != 0), -1)
    ref = torch.from_numpy((m * m + 3 * m * d + (m % 7 == 0)) % 37).where(torch.from_numpy((m * d) % 13 != 1), -1)
    metric.update(pred.to(device), ref.to(device))
    close(metric.compute(), case["output"][average])


@golden("large_multiset")
def test_multiset_overlap_large_golden_case_matches(case, device):
    d, i = torch.arange(1000, device=device)[:, None], torch.arange(34, device=device)
    pred, ref = (7 * d * d + 13 * i * i + 5 * i * d) % 40, (11 * d + 17 * i * i + 3 * i * d) % 40
    lengths = (20 + d % 11)[:, 0], (20 + 3 * d % 11)[:, 0]
    for constraint, expected in case["output"].items():
        result = functional.multiset_overlap(pred, ref, *lengths, constraint)
        assert [int(part.sum()) for part in result] == [
            expected["overlap"],
            expected["pred_self"],
            expected["ref_self"],
        ]


@pytest.mark.filterwarnings("ignore:(pred|ref). tags do not fit")
@golden("spans")
def test_span_scores_golden_cases_match(case):
    pred, ref, expected = case["input"]["pred"], case["input"]["ref"], case["output"]
    for tags, spans in ((pred, expected["pred_spans"]), (ref, expected["ref_spans"])):
        assert [[[*span] for span in row] for row in spans_of(tags)] == spans
    labels = tuple(expected["per_type"])
    per_type = {f"{name}[{label}]": value for label in labels for name, value in expected["per_type"][label].items()}
    for metric, mode, values in (
        *((structured.SpanScores(scheme), "lenient", expected[scheme]) for scheme in SCHEMES),
        (structured.SpanScores(), "iob2", expected["strict_iob2"]),
        (structured.SpanScores(average="types", labels=labels), "lenient", expected["types"] | per_type),
        (structured.SpanScores(average="weighted", labels=labels), "lenient", expected["weighted"]),
    ):
        metric.update_tags(pred, ref, mode)
        close(metric.compute(), values)


@golden("ranking")
def test_ranking_scores_golden_cases_match(case, device):
    gains = case["input"]["ref_gains"]
    expected = {name: score for name, score in case["output"].items() if name != "ap_metametric"}
    names = dict.fromkeys(name.partition("@")[0] for name in expected)
    metric = structured.RankingScores((1, 3, 5), tuple(names)).to(device)
    gain = torch.tensor([float(gain) for gain in gains.values()], device=device)
    metric.update(keys_of(case["input"]["pred"]).to(device), keys_of(list(gains)).to(device), ref_gain=gain)
    close(metric.compute(), expected)


@golden("boxes")
def test_box_match_golden_cases_match(case, device):
    for name, expected in case["output"].items():
        threshold, kind, objective = name.removeprefix("iou").split("_")
        metric = structured.BoxMatch(float(threshold), objective=objective).to(device)
        for image in case["input"]["images"]:
            boxes = [
                torch.tensor(image[f"{role}_boxes"], dtype=torch.float64, device=device).reshape(-1, 4)
                for role in ("pred", "ref")
            ]
            labels = [torch.tensor(image[f"{role}_labels"], device=device).long() for role in ("pred", "ref")]
            metric.update(
                *boxes, **(dict(zip(("pred_labels", "ref_labels"), labels, strict=True)) if kind == "class" else {})
            )
        soft = {f"soft-{score}": value for score, value in expected.get("soft", {}).items()}
        close(metric.compute(), soft | {k: v for k, v in expected.items() if k not in ("soft", "matched")})


@golden("cluster_accuracy")
def test_cluster_accuracy_golden_cases_match(case, device):
    metric = structured.ClusterMatchScores().to(device)
    metric.update(*(torch.tensor(case["input"][role], device=device) for role in ("pred", "ref")))
    close(metric.compute(), case["output"])


@golden("events")
def test_event_scores_golden_cases_match(case, device):
    inputs = [
        [
            [
                structured.Event(
                    structured.Trigger(structured.Mention(*span), kind),
                    [structured.Argument(structured.Mention(*ends), role) for ends, role in args],
                )
                for span, kind, args in document[part]
            ]
            for document in case["input"]["documents"]
        ]
        for part in ("pred", "ref")
    ]
    for name, expected in case["output"].items():
        average, link, *policy = name.split("_")
        metric = structured.EventScores(link, average, *policy).to(device)
        metric.update_events(*inputs)
        close(metric.compute(), expected)
