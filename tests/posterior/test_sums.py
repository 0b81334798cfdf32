import functools

import numpy as np
import pytest
import torch
from fake_device import DEVICE, Device
from posterior_oracle import GOLDEN, as_float64, confusion_matrix, sums_of

import tensormetrics.posterior.sampling.confusion_sums
from tensormetrics.posterior import sample_confusion_matrices, sample_metrics, sample_sums, sums_from_matrices

COUNTS = torch.tensor([[[13, 2, 1], [3, 20, 4], [0, 5, 9]], [[4, 0, 0], [0, 0, 0], [0, 1, 1]]])


def equal(a, b):
    return all(x is y is None or torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", GOLDEN["sums"])
def test_sums_from_matrices_golden_values_match(name, device):
    matrix = torch.tensor(GOLDEN["matrices"][name], dtype=torch.float64, device=device)
    for actual, expected in zip(sums_from_matrices(matrix)[:4], GOLDEN["sums"][name].items(), strict=True):
        torch.testing.assert_close(actual.cpu(), as_float64(expected[1]), rtol=1e-9, atol=1e-12)
    weights = torch.rand(3, *matrix.shape, device=device)
    batch, single = sums_from_matrices(matrix.expand(2, 5, -1, -1), weights), sums_from_matrices(matrix, weights)
    for actual, once in zip(batch[:4], single[:4], strict=True):
        assert torch.equal(actual, once.expand(2, 5, -1))
    forms = torch.stack([(w * matrix).sum() / matrix.sum() for w in weights.double()])
    torch.testing.assert_close(batch.weighted, forms.expand(2, 5, -1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_sums_of_integers_are_quotients_of_exact_sums(dtype):
    counts = torch.randint(0, 10**6, (5, 7, 7), dtype=dtype)
    counts[1] = 0
    counts[2, :, 1:] = 0
    for found, expected in zip(sums_from_matrices(counts)[:4], sums_from_matrices(counts.double())[:4], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("E", [1, 30])
def test_sample_sums_on_device_launch_six_operators_and_wait_once(E):
    counts, names = torch.randint(0, 9, (E, 5, 5)), [f"sums/{e}" for e in range(E)]
    with Device() as device:
        counts = counts.to(DEVICE)
        for operators in 9, 6:  # the first call makes two priors and the keys
            device.operators, device.waits[:] = 0, []
            sample_sums(counts, 40, names=names)
            assert (device.operators <= operators) and device.waits == ["read of a copy"]


@pytest.mark.parametrize("entry", [-1, -1.0, 1e38, torch.nan])
@pytest.mark.parametrize("function", [sample_sums, sample_confusion_matrices])
def test_sample_sums_of_invalid_counts_on_device_raise(function, entry):
    counts = torch.ones(2, 3, 3, dtype=torch.tensor(entry).dtype)
    counts[1, 2, 0] = entry
    with Device(), pytest.raises(ValueError, match="counts: got entries from"):
        function(counts.to(DEVICE), 4)


@pytest.mark.parametrize("method", ["posterior", "prior", "random"])
@pytest.mark.parametrize("C", [2, 3, 4])
def test_sample_sums_equal_a_loop(C, method, device):
    counts = torch.randint(0, 6, (2, C, C), dtype=torch.float64) + torch.eye(C) * 0.5
    prior = torch.rand(C, C)
    address = {"method": method, "seed": 5, "names": ["x", "y"], "start": 3, "dtype": torch.float64}
    sums = sample_sums(counts.to(device), 20, prevalence_prior=0.5, confusion_prior=prior, **address)
    sums = torch.stack(sums[:4], 2).cpu()  # (S, E, 4, C)
    for e, name in enumerate("xy"):
        observed = np.zeros((C, C)) if method == "prior" else counts[e].numpy()
        cells = observed + prior.double().numpy()
        if method == "random":
            cells = np.repeat(cells.mean(1, keepdims=True), C, 1)
        for s in range(20):
            matrix = confusion_matrix(observed.sum(1) + 0.5, cells, s + 3, name, method, seed=5)
            np.testing.assert_allclose(sums[s, e].numpy(), sums_of(matrix), rtol=1e-9)


@pytest.mark.parametrize("prior", ["ones", "perks"])
@pytest.mark.parametrize("name", GOLDEN["posterior_moments"])
def test_sample_sums_have_posterior_moments(name, prior, device):
    S, counts = 20_000, torch.tensor(GOLDEN["matrices"][name], device=device)
    sums = sample_sums(counts, S, prevalence_prior=prior, confusion_prior=prior, dtype=torch.float64)
    tp, fp, fn, tn = (x[:, 0].cpu() for x in sums[:4])
    moments = {key: as_float64(value) for key, value in GOLDEN["posterior_moments"][name][prior].items()}
    cells, variances = moments["mean_cells"], moments["var_cells"]
    quantities = {
        "prevalence": (tp + fn, moments["mean_prevalence"], moments["var_prevalence"]),
        "tpr": (tp / (tp + fn), moments["mean_tpr"], moments["var_tpr"]),
        "acc": (tp.sum(-1), moments["mean_acc"], moments["var_acc"]),
        "tp": (tp, cells.diag(), variances.diag()),
    }
    for x, mean, variance in quantities.values():
        assert ((x.mean(0) - mean).abs() <= 5 * (variance / S).sqrt()).all()
        fourth = ((x - mean) ** 4).mean(0)
        assert ((x.var(0) - variance).abs() <= 5 * ((fourth - variance**2) / S).sqrt()).all()
    for x, mean in (fp, cells.sum(0) - cells.diag()), (tn, 1 - cells.sum(0) - cells.sum(1) + cells.diag()):
        assert ((x.mean(0) - mean).abs() <= 5 * x.std(0) / S**0.5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prior", [1, "perks"])
def test_sample_sums_shards_and_subsets_equal_full_call(prior, dtype, device):
    options = {"prevalence_prior": prior, "confusion_prior": prior, "dtype": dtype}
    matrices = sample_confusion_matrices(COUNTS, 100, **options)
    parts = [sample_confusion_matrices(COUNTS, n, start=start, **options) for start, n in ((0, 1), (1, 3), (4, 96))]
    assert torch.equal(torch.cat(parts), matrices)
    start, weights = 2**32 - 200, torch.rand(2, 7, 7, device=device)
    counts = torch.randint(0, 9, (2, 7, 7), device=device)
    full = sample_sums(counts, 270, start=start, weights=weights, **options)
    for size in 1, 7, 256:
        shards = [
            sample_sums(counts, min(size, 270 - s), start=start + s, weights=weights, **options)
            for s in range(0, 270, size)
        ]
        assert equal([torch.cat(parts) for parts in zip(*shards, strict=True)], full)
    single = sample_sums(counts[1], 270, names=["1"], start=start, weights=weights, **options)
    assert equal(single, [x[:, 1:] for x in full])
    margins = sample_sums(counts, 270, start=start, **options)
    assert margins.weighted is None and equal(margins[:4], full[:4])
    diagonal = sample_sums(counts, 270, need="diag", start=start, **options)
    assert diagonal.fp is None and diagonal.tn is None and diagonal.weighted is None
    assert torch.equal(diagonal.tp, full.tp) and torch.equal(diagonal.fn, full.fn)


@pytest.mark.parametrize("method", ["posterior", "prior", "random", "input"])
def test_sample_sums_equal_sums_of_matrices(method, device):
    options = {"prevalence_prior": "perks", "confusion_prior": 0.5, "method": method, "start": 5, "seed": 2}
    counts, weights = torch.randint(0, 9, (2, 5, 5), device=device), torch.rand(3, 5, 5, device=device)
    matrices = sample_confusion_matrices(counts, 70, dtype=torch.float64, **options)
    assert matrices.shape == (1 if method == "input" else 70, 2, 5, 5)
    sums = sample_sums(counts, 70, weights=weights, dtype=torch.float64, **options)
    for actual, expected in zip(sums, sums_from_matrices(matrices, weights), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-300)
    single = sample_confusion_matrices(counts, 70, **options)
    assert method == "input" or torch.equal(single, matrices.float())


def test_sample_sums_small_values_are_accurate(device):
    counts = torch.tensor([[1e12, 2, 0], [3, 1e12, 1], [2, 0, 4]], dtype=torch.float64, device=device)
    double, single = (
        sample_sums(counts, 500, prevalence_prior=0.1, confusion_prior=0.1, dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    for x, y in zip(single[:4], double[:4], strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=0)
    torch.testing.assert_close(sum(double[:4]), torch.ones_like(double.tp), rtol=1e-12, atol=0)
    s = 17
    matrix = confusion_matrix((counts.sum(1) + 0.1).tolist(), (counts + 0.1).tolist(), s, "0")
    np.testing.assert_allclose(torch.stack(double[:4], 2)[s, 0].cpu().numpy(), sums_of(matrix), rtol=1e-7)


@pytest.mark.parametrize("tiny", [1e-37, 1e-40, 1e-300, 1e-310])  # in float32 only the first has a finite reciprocal
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sample_sums_tiny_concentrations_select_one_cell(tiny, dtype, device):
    prior = tiny * torch.tensor([[1.0, 2, 1], [1, 1, 2], [3, 1, 1]], dtype=torch.float64)
    counts, prevalence_prior = (
        torch.zeros(3, 3, dtype=torch.int64, device=device),
        tiny * torch.tensor([1.0, 1, 3]).double(),
    )
    sums = sample_sums(counts, 4000, prevalence_prior=prevalence_prior, confusion_prior=prior, dtype=dtype)
    for part in sums[:4]:
        torch.testing.assert_close(part, part.round(), rtol=0, atol=1e-6)
    mean = sums.tp.double().mean((0, 1)).cpu()  # row by 1/5, 1/5, 3/5, then column by 1/4, 1/4, 1/5
    assert (mean - torch.tensor([0.05, 0.05, 0.12], dtype=torch.float64)).abs().max() < 0.03


def test_sample_sums_impossible_cells_are_zero(device):
    no_prior = {"prevalence_prior": 0, "confusion_prior": 0}
    sums = sample_sums(COUNTS.to(device), 50, **no_prior, dtype=torch.float64)
    assert (sums.fp[:, 1, 0] == 0).all() and (sums.fn[:, 1, 0] == 0).all()
    assert (sums.tp[:, 1, 1] == 0).all() and (sums.fn[:, 1, 1] == 0).all()  # a class without items
    perfect = sample_sums(torch.eye(4, device=device) * 7, 50, **no_prior)
    assert (perfect.fp == 0).all() and (perfect.fn == 0).all()
    torch.testing.assert_close(sum(perfect[:4]), torch.ones_like(perfect.tp))
    unknown_row = sample_sums(COUNTS.to(device)[1], 50, prevalence_prior=1, confusion_prior=0, dtype=torch.float64)
    assert (unknown_row.tp[..., 1] == 0).all() and (sum(unknown_row[:4])[..., 0] < 1).all()
    nothing = sample_sums(torch.zeros(3, 3, device=device), 50, **no_prior)
    assert all((x == 0).all() for x in nothing[:4])


def test_sample_sums_input_and_random_match_expectation(device):
    observed = sample_sums(COUNTS.to(device), 10, method="input")
    assert observed.tp.shape == (1, 2, 3) and observed.tp.dtype == torch.float64
    assert equal([x[0] for x in observed[:4]], sums_from_matrices(COUNTS.to(device))[:4])
    guess = sample_sums(COUNTS[0].to(device), 20_000, prevalence_prior=1, confusion_prior=1, method="random")
    accuracy = guess.tp.double().sum(-1)
    assert abs(accuracy.mean() - 1 / 3) < 5 * accuracy.std() / len(accuracy) ** 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": torch.zeros(2, 3)}, r"counts: got shape \((1, )?2, 3\), wanted \(..., C, C\) with C >= 2"),
        ({"counts": torch.zeros(1, 1), "confusion_prior": 1}, r"counts: got shape .*1, 1\), wanted \(..., C, C\) with"),
        ({"counts": torch.zeros(2, 2, 3, 3)}, r"counts: got shape \(2, 2, 3, 3\), wanted \(E, C, C\)"),
        ({"counts": torch.tensor([[1.0, -2], [0, 1]])}, "counts: got entries from -2.0 to 1.0, wanted finite"),
        ({"method": "bootstrap"}, "method: got 'bootstrap', wanted one of 'posterior', 'prior', 'random', 'input'"),
        ({"method": "prior", "prevalence_prior": 0}, "method: got 'prior' with an improper prior"),
        ({"need": "cells"}, "need: got 'cells', wanted one of 'diag', 'margins', 'weighted'"),
        ({"need": "weighted"}, r"weights: got None with need='weighted', wanted a tensor \(W, C, C\)"),
        ({"weights": torch.ones(3, 3)}, r"weights: got shape \(3, 3\), wanted \(W, 3, 3\)"),
        ({"weights": torch.ones(1, 3, 3, device="meta")}, "devices differ: counts on cpu, weights on meta"),
        ({"start": -1}, "start: got -1, wanted an integer >= 0"),
        ({"dtype": torch.bfloat16}, "dtype: got torch.bfloat16, wanted one of torch.float32, torch.float64"),
        ({"names": ["a"]}, r"names: got \['a'\], wanted a list of 2"),
        ({"names": "ab"}, "names: got 'ab', wanted a list of 2"),
        ({"counts": torch.full((2, 2), 6e37)}, r"counts: got entries from 6.* wanted at most 1e\+37 in a row"),
        ({"counts": 1e39 * torch.ones(2, 2).double()}, r"counts: got entries from 1e\+39 to 1e\+39, wanted at"),
        ({"prevalence_prior": "flat"}, "prevalence_prior: got 'flat', wanted one of"),
        ({"confusion_prior": torch.ones(3)}, r"confusion_prior: got an array of shape \(3,\), wanted \(3, 3\)"),
    ],
)
def test_samplers_invalid_options_raise(options, message):
    options = {"counts": COUNTS, "replicates": 1, **options}
    for sample in sample_sums, functools.partial(sample_metrics, metrics="acc"):
        if sample is sample_sums or not options.keys() & {"need", "weights"}:
            with pytest.raises(ValueError, match=message):
                sample(**options)


@pytest.mark.parametrize("prior", ["balanced", "perks", "hierarchical"])
@pytest.mark.parametrize("C", [3, 70])  # for 70 classes only cells with a mass are sampled
def test_sample_matrices_in_tiles_equal_single_pass(prior, C, monkeypatch, device):
    counts = (torch.eye(C) * 5 + torch.arange(C * C).view(C, C) % 2).to(device)
    weights = torch.arange(2 * C * C, device=device).view(2, C, C)

    def sample_all():
        options = {"confusion_prior": prior, "start": 3}
        sums = sample_sums(counts, 21, weights=weights, dtype=torch.float64, **options)
        return [sample_confusion_matrices(counts, 21, **options), *sums]

    expected = sample_all()
    monkeypatch.setattr(tensormetrics.posterior.sampling.confusion_sums, "TILE", 5 * C * C)
    *unweighted, weighted = sample_all()
    assert all(map(torch.equal, unweighted, expected))
    torch.testing.assert_close(weighted, expected[-1], rtol=1e-14, atol=0)  # added up in other blocks
