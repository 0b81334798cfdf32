"""Overlaps of items with variables against enumeration and golden values, and errors."""

import json
from pathlib import Path

import pytest
import torch
from cases.latent import WIN, best_of_all_mappings, bound_items
from fake_device import DEVICE, Device
from raising import raises
from test_conformance import on
from torch import Tensor

from tensormetrics.structured import LatentMatch
from tensormetrics.structured.functional import latent_overlap
from tensormetrics.structured.tensors import _lengths
from tensormetrics.structured.tensors._integer_program import ProgramAnswer
from tensormetrics.structured.tensors.latent import exact as latent_exact
from tensormetrics.structured.tensors.latent import latent
from tensormetrics.structured.tensors.latent.terms import Terms

GOLDEN = json.loads((Path(__file__).parent / "latent_golden.json").read_text())
CONSTRAINTS = ("<->", "->", "<-", "~")
SOLVERS = ({}, {"solver": "exact"}, {"solver": "search"}, {"solver": "search", "restarts": 0}, {"node_limit": 0})


def encode(items: list, constants: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Numbers of entries, which are constants or ["?", variable]."""
    variables: dict[str, int] = {}
    rows = [
        [variables.setdefault(e[1], len(variables)) if isinstance(e, list) else constants.setdefault(e, len(constants))
         for e in item]
        for item in items
    ]  # fmt: skip
    return torch.tensor(rows), torch.tensor([[isinstance(e, list) for e in item] for item in items])


def random_documents(count: int, variables: int) -> list[tuple[Tensor, ...]]:
    """Items of three columns, of which mostly the outer ones are variables, with lengths."""
    generator = torch.Generator().manual_seed(variables)

    def items(size: int) -> tuple[Tensor, Tensor]:
        is_var = torch.rand(count, size, 3, generator=generator) < torch.tensor([0.9, 0.1, 0.8])
        value = torch.rand(count, size, 3, generator=generator)
        return (value * torch.where(is_var, variables, 2)).long(), is_var

    lengths = [torch.randint(size // 3, size + 1, (count,), generator=generator) for size in (14, 15)]
    return [*items(14), *items(15), *lengths]


@pytest.mark.parametrize("case", GOLDEN["latent"], ids=[case["id"] for case in GOLDEN["latent"]])
def test_latent_overlap_golden_cases_match(case, device):
    constants: dict[str, int] = {}
    pred, ref = ([x.to(device) for x in encode(case["input"][part], constants)] for part in ("pred", "ref"))
    for constraint, expected in case["output"].items():
        for options in SOLVERS[:3]:
            solution = latent_overlap(*pred, *ref, constraint=constraint, **options)
            assert solution.value <= expected["overlap"] <= solution.bound
            assert solution.exact == (solution.value == solution.bound)
        solution = latent_overlap(*pred, *ref, constraint=constraint)
        assert solution.exact and solution.value == expected["overlap"]
        for part, name in ((pred, "pred_self"), (ref, "ref_self")):
            self_overlap = latent_overlap(*part, *part, constraint=constraint)
            assert self_overlap.exact and self_overlap.value == expected[name]


@pytest.mark.parametrize("variables", [1, 3, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 5, 6))])
def test_latent_overlap_matches_enumeration(variables, device):
    """50 documents for each number of variables and constraint: every solver brackets the optimum.

    `exact` is right, and the mapping has the value.
    """
    documents = random_documents(50, variables)
    for constraint in CONSTRAINTS if variables < 5 else CONSTRAINTS[variables - 5 :: 2]:
        cases = []
        for *tables, n, m in zip(*documents, strict=True):
            cases.append([part[: n if i < 2 else m].numpy() for i, part in enumerate(tables)])
        optimum = torch.tensor([float(best_of_all_mappings(*case, constraint)) for case in cases])
        for options in SOLVERS:
            solution = latent_overlap(*(x.to(device) for x in documents), constraint, **options)
            value, bound, exact, mapping = (x.cpu() for x in solution)
            assert bool(((value <= optimum) & (optimum <= bound)).all())
            assert torch.equal(exact, value == bound)
            assert options not in SOLVERS[:2] or bool(exact.all())
            for case, names, v in zip(cases, mapping.tolist(), value.tolist(), strict=True):
                assert mapping_value(case, names, constraint) == v


def mapping_value(case: list, mapping: list[int], constraint: str) -> float:
    pred, pred_is_var, ref, ref_is_var = case
    used = [x for x in mapping if x >= 0]
    assert len(set(used)) == len(used)
    mapped = bound_items(pred, pred_is_var, [None if x < 0 else x for x in mapping])
    items = bound_items(ref, ref_is_var, range(100))
    return sum(WIN[constraint](count, items[item]) for item, count in mapped.items())


def test_terms_of_three_variables(device):
    # (a b c) and (c b a) can both be matched only if the mapping turns round.
    pred = torch.tensor([[0, 1, 2], [2, 1, 0], [0, 0, 1]], device=device)
    ref = torch.tensor([[2, 1, 0], [0, 1, 2], [2, 2, 1]], device=device)
    is_var = torch.ones_like(pred, dtype=torch.bool)
    solution = latent_overlap(pred, is_var, ref, is_var)
    assert solution.value == 3 and solution.exact and solution.mapping.tolist() == [2, 1, 0]


def test_mapping_without_matches_is_minus_one(device):
    pred = torch.tensor([[0, 5], [1, 6]], device=device)
    ref = torch.tensor([[1, 5], [0, 7]], device=device)
    is_var = torch.tensor([[True, False]] * 2, device=device)
    assert latent_overlap(pred, is_var, ref, is_var).mapping.tolist() == [1, -1]


@pytest.mark.parametrize("options", [{}, {"solver": "search"}])
def test_latent_overlap_is_independent_of_batches_and_chunks(options, monkeypatch, device):
    documents = [x.to(device) for x in random_documents(20, 6)]
    solution = latent_overlap(*documents, **options)
    assert all(torch.equal(a, b) for a, b in zip(solution, latent_overlap(*documents, **options), strict=True))
    for i in range(20):
        single = latent_overlap(*(x[i] for x in documents), **options)
        assert [float(x) for x in single[:3]] == [float(x[i]) for x in solution[:3]]
        assert single.mapping.tolist() == solution.mapping[i, : len(single.mapping)].tolist()
    monkeypatch.setattr(_lengths, "CELLS", 1)
    monkeypatch.setattr(_lengths, "SMALL_CELLS", 0)
    assert all(torch.equal(a, b) for a, b in zip(solution, latent_overlap(*documents, **options), strict=True))


@pytest.mark.full
def test_number_of_synchronizations_is_independent_of_unproved_documents():
    counts = []
    for documents in (5, 40):
        with Device() as fake:
            inputs = on(DEVICE, tuple(random_documents(documents, 6)))
            fake.waits.clear()
            unproved = ~latent_overlap(*inputs, solver="search").exact
            of_search = len(fake.waits)
            latent_overlap(*inputs)
            counts.append((len(fake.waits) - of_search) - of_search)
            assert unproved.sum().item() > 1
    assert counts[0] == counts[1] > 0


def test_integer_programs_without_search_find_optimum(monkeypatch, device):
    documents = [x.to(device) for x in random_documents(12, 6)]
    expected = latent_overlap(*documents)

    def nothing(terms: Terms, *_: object) -> tuple[Tensor, Tensor, Tensor]:
        worst = terms.free.new_full((len(terms.free),), 99.0)
        return worst, torch.zeros_like(worst), terms.pred.new_full((len(worst), terms.p), terms.r)

    monkeypatch.setattr(latent, "bound_and_mapping", nothing)
    monkeypatch.setattr(latent_exact, "climb", nothing)
    monkeypatch.setattr(latent_exact, "relax", lambda program: ProgramAnswer(0 * program.weight, 99.0))
    solution = latent_overlap(*documents)
    assert torch.equal(solution.value, expected.value) and bool(solution.exact.all())
    for *tables, n, m, mapping, value in zip(*documents, solution.mapping, solution.value, strict=True):
        case = [part[: n if i < 2 else m].cpu().numpy() for i, part in enumerate(tables)]
        assert mapping_value(case, mapping.tolist(), "<->") == value


def test_more_restarts_and_other_seeds_are_other_searches():
    documents = random_documents(200, 6)
    values = [
        latent_overlap(*documents, solver="search", restarts=r, seed=s).value for r, s in ((0, 0), (9, 0), (1, 5))
    ]
    assert bool((values[1] >= values[0]).all()) and values[1].sum() > values[0].sum()
    assert not torch.equal(values[1], values[2])


def test_self_overlap_of_any_relation_is_solved():
    # ARG and instance items of one variable each: the identity wins 1 + 1 + 4.
    props = torch.tensor([[0, 0, 1], [0, 1, 2], [1, 1, 2], [1, 1, 2]])
    is_var = torch.tensor([[True, False, True], *[[True, False, False]] * 3])
    metric = LatentMatch("~", ("none", "jaccard"))
    metric.update(props, is_var, props, is_var)
    assert {name: float(score) for name, score in metric.compute().items()} == {"overlap": 6.0, "jaccard": 1.0}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_equal_items_count_once(constraint, device):
    """Repeated items of a document have no effect, neither in prediction and reference nor in self-overlaps."""
    documents = random_documents(12, 2)
    fewer, metrics = [], [LatentMatch(constraint, ("none", "jaccard"), duplicates=d) for d in ("set", "multiset")]
    for *tables, n, m in zip(*documents, strict=True):
        tables = [part[: n if i < 2 else m] for i, part in enumerate(tables)]
        both = (torch.cat([tables[i], tables[i + 1].long()], -1).unique(dim=0).tensor_split(2, -1) for i in (0, 2))
        fewer.append([part.to(device) for props, is_var in both for part in (props, is_var.bool())])
        metrics[1].to(device).update(*fewer[-1])
    documents = [x.to(device) for x in documents]
    metrics[0].to(device).update(*documents)
    solution = latent_overlap(*documents, constraint, duplicates="set")
    assert torch.equal(
        solution.value, torch.stack([latent_overlap(*case, constraint=constraint).value for case in fewer])
    )
    assert not torch.equal(solution.value, latent_overlap(*documents, constraint).value)
    assert metrics[0].compute() == metrics[1].compute()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pred_props": torch.zeros(2, 3)},
            "pred_props: got torch.float32, wanted an integer dtype; write pred_props.long()",
        ),
        (
            {"pred_is_var": torch.zeros(2, 3).long()},
            "pred_is_var: got torch.int64, wanted torch.bool; write pred_is_var.bool()",
        ),
        ({"ref_is_var": torch.zeros(2, 2).bool()}, "ref_is_var: got shape (2, 2), wanted (2, 3)"),
        (
            {"ref_props": torch.zeros(2, 4).long(), "ref_is_var": torch.zeros(2, 4).bool()},
            "ref_props: got shape (2, 4), wanted (M, 3)",
        ),
        (
            {"pred_props": torch.full((2, 3), -1), "pred_is_var": torch.ones(2, 3).bool()},
            "pred_props: got a negative number of a variable, wanted numbers from 0",
        ),
        ({"n_pred": torch.tensor([2])}, "n_pred: got shape (1,), wanted ()"),
        ({"solver": "fast"}, "solver: got 'fast', wanted one of 'auto', 'exact', 'search'"),
        ({"duplicates": "set_cross"}, "duplicates: got 'set_cross', wanted one of 'multiset', 'set'"),
        ({"restarts": -1}, "restarts: got -1, wanted an integer >= 0"),
        ({"node_limit": 0.5}, "node_limit: got 0.5, wanted an integer >= 0"),
    ],
)
def test_latent_overlap_invalid_arguments_raise(change, message):
    arguments = {f"{role}_props": torch.zeros(2, 3).long() for role in ("pred", "ref")}
    arguments |= {f"{role}_is_var": torch.zeros(2, 3).bool() for role in ("pred", "ref")}
    with raises(ValueError, message):
        latent_overlap(**(arguments | change))


def test_latent_overlap_without_scipy_raises(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    documents = random_documents(200, 6)
    assert not bool(latent_overlap(*documents, solver="search").exact.all())
    with raises(
        ImportError,
        "solver: 'auto' and 'exact' prove their values with scipy; write pip install scipy, or solver='search'",
    ):
        latent_overlap(*documents)
