import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from retrieval_oracle import CASES

from tensormetrics.retrieval import bootstrap, paired_randomisation
from tensormetrics.retrieval.scores import uncertainty
from tensormetrics.retrieval.scores.uncertainty import ALTERNATIVES, METHODS


class TestBootstrap:
    def test_golden(self, device):
        case = CASES["bootstrap/standard_error"]
        interval = bootstrap(torch.tensor(case["scores"], device=device), seed=0)
        assert float(interval.value) == pytest.approx(case["expected"]["mean"], abs=1e-12)
        assert all(value.dtype == torch.float64 and value.device.type == device.type for value in interval)

    @pytest.mark.parametrize("method", METHODS)
    def test_every_resample_of_three_queries(self, method, device):
        scores = [0.0, 0.25, 1.0]
        means = np.sort([np.mean(drawn) for drawn in itertools.product(scores, repeat=3)])
        interval = bootstrap(torch.tensor(scores, device=device), 200_000, 0.8, method=method, seed=0)
        low, high = np.quantile(means, 0.1, method="inverted_cdf"), np.quantile(means, 0.9, method="inverted_cdf")
        mean = np.mean(scores)
        if method == "basic":
            low, high = 2 * mean - high, 2 * mean - low
        if method == "bca":
            below = np.mean(means < mean - 1e-12) + 0.5 * np.mean(abs(means - mean) < 1e-12)
            bias, without = scipy.stats.norm.ppf(below), np.array([0.625, 0.5, 0.125])
            influence = without.mean() - without
            skewness = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
            shifted = bias + scipy.stats.norm.ppf([0.1, 0.9])
            levels = scipy.stats.norm.cdf(bias + shifted / (1 - skewness * shifted))
            low, high = np.quantile(means, levels, method="inverted_cdf")
        assert [float(interval.low), float(interval.high)] == pytest.approx([low, high], abs=1e-12)

    @pytest.mark.parametrize(("method", "theirs"), [("percentile", "percentile"), ("basic", "basic"), ("bca", "BCa")])
    def test_agreement_with_scipy(self, method, theirs, device):
        scores = np.random.RandomState(0).exponential(size=40)
        interval = bootstrap(torch.tensor(scores, device=device), 40_000, 0.9, method=method, seed=0)
        expected = scipy.stats.bootstrap(
            (scores,), np.mean, n_resamples=40_000, confidence_level=0.9, method=theirs, rng=np.random.default_rng(0)
        )
        ends = float(interval.low), float(interval.high)
        assert ends == pytest.approx(expected.confidence_interval, abs=0.05 * expected.standard_error)

    def test_groups_are_drawn_whole(self, device):
        # Two groups: the mean is that of the one, of the other, or of both.
        scores, groups = torch.tensor([1.0, 1.0, 1.0, 0.0], device=device), torch.tensor([7, 7, 7, 2], device=device)
        interval = bootstrap(scores, 50_000, 0.6, groups=groups, seed=0)
        assert [float(value) for value in interval] == [0.75, 0.0, 1.0]

    def test_groups_of_one_are_no_groups(self, device):
        scores = torch.rand(30, device=device)
        for values in zip(
            bootstrap(scores, 500, groups=torch.arange(30, device=device) * 1.5, seed=0),
            bootstrap(scores, 500, seed=0),
            strict=True,
        ):
            torch.testing.assert_close(*values, rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("method", METHODS)
    def test_nan_is_left_out(self, method, device):
        scores = torch.rand(2, 3, 20, device=device)
        holes = torch.nn.functional.pad(scores, (4, 3), value=torch.nan)
        for ours, expected in zip(
            bootstrap(holes, 400, method=method, seed=0),
            bootstrap(scores, 400, method=method, seed=0),
            strict=True,
        ):
            assert ours.shape == (2, 3) and torch.equal(ours, expected)
        rows = torch.stack([holes[0, 0], torch.full_like(holes[0, 0], torch.nan)])
        rows[1, 5] = 0.25
        mixed = bootstrap(rows, 400, method=method, seed=0)
        assert [float(value[1]) for value in mixed] == [0.25, 0.25, 0.25]
        for nothing in (rows[:, :3], rows[:, :0]):
            assert all(value.isnan().all() for value in bootstrap(nothing, 50, method=method))

    @pytest.mark.parametrize("method", METHODS)
    def test_equal_scores(self, method, device):
        interval = bootstrap(torch.full((3, 10), 0.1, device=device, dtype=torch.float64), 500, method=method)
        for value, expected in zip(interval, (0.1, 0.1, 0.1), strict=True):
            np.testing.assert_allclose(value.cpu(), expected, atol=1e-12)

    def test_rows_pieces_and_seeds(self, monkeypatch, device):
        scores = torch.rand(5, 70, device=device)
        groups = torch.arange(70, device=device) // 3
        whole = bootstrap(scores, 999, groups=groups, seed=0)
        monkeypatch.setattr(uncertainty, "_rows", lambda *_: 7)
        for part, rows in ((bootstrap(scores, 999, groups=groups, seed=0), slice(None)),) + tuple(
            (bootstrap(scores[i], 999, groups=groups, seed=0), i) for i in range(5)
        ):
            for ours, expected in zip(part, whole, strict=True):
                torch.testing.assert_close(ours, expected[rows], rtol=1e-12, atol=1e-14)
        other = bootstrap(scores, 999, seed=1)
        assert (other.low != whole.low).all()

    @pytest.mark.parametrize("method", METHODS)
    def test_coverage(self, method, generator):
        # 2,000 samples of 60 queries; 95 % intervals of skewed means cover a little less.
        scores = torch.rand(2000, 60, generator=generator) ** 2
        interval = bootstrap(scores, 1000, method=method, seed=0)
        covered = ((interval.low <= 1 / 3) & (interval.high >= 1 / 3)).double().mean()
        assert 0.925 < float(covered) < 0.96

    def test_coverage_of_dependent_queries(self, generator):
        classes = torch.arange(40).repeat_interleave(10)
        scores = torch.randn(1000, 40, generator=generator)[:, classes] + torch.randn(1000, 400, generator=generator)
        share = {}
        for groups in (None, classes):
            interval = bootstrap(scores, 500, groups=groups, seed=0)
            share[groups is None] = float(((interval.low <= 0) & (interval.high >= 0)).double().mean())
        assert share[True] < 0.7 and 0.92 < share[False] < 0.965


def exact_p(differences, alternative):
    fractions = [Fraction(d) for d in differences]
    observed, hits, count = sum(fractions), 0, 0
    for signs in itertools.product((1, -1), repeat=len(fractions)):
        total = sum(sign * d for sign, d in zip(signs, fractions, strict=True))
        hits += {
            "two-sided": abs(total) >= abs(observed),
            "greater": total >= observed,
            "less": total <= observed,
        }[alternative]
        count += 1
    return hits / count


class TestPairedRandomisation:
    def test_golden(self, device):
        case = CASES["randomisation/ten_queries"]
        a, b = (torch.tensor(case[side], device=device) for side in "ab")
        for alternative in ALTERNATIVES:
            test = paired_randomisation(a, b, alternative=alternative)
            assert float(test.p_value) == case["expected"]["p_" + alternative.replace("-", "_")]
            assert float(test.difference) == pytest.approx(case["expected"]["mean_difference"], abs=1e-12)

    @pytest.mark.parametrize("alternative", ALTERNATIVES)
    def test_every_sign_vector(self, alternative, device):
        random = np.random.RandomState(0)
        a = np.round(random.rand(12, 9), 1)  # ties among the sums
        b = np.round(random.rand(12, 9), 1)
        b[:, :2] = a[:, :2]
        test = paired_randomisation(*(torch.tensor(side, device=device) for side in (a, b)), alternative=alternative)
        for i in range(12):
            tenths = np.round(10 * (a[i] - b[i])).astype(int).tolist()
            assert float(test.p_value[i]) == exact_p(tenths, alternative)

    def test_twenty_are_exact_and_more_are_drawn(self, device):
        a = torch.rand(2, 40, device=device)
        b = torch.rand(2, 40, device=device)
        a[0, :20] = b[0, :20]
        test = paired_randomisation(a, b, 20_000, seed=0)
        alone = paired_randomisation(a[1], b[1], 20_000, seed=0)
        assert float(alone.p_value) == float(test.p_value[1])
        drawn = scipy.stats.permutation_test(
            ((a - b)[1].cpu().double().numpy(),),
            np.mean,
            permutation_type="samples",
            n_resamples=20_000,
            rng=np.random.default_rng(0),
        )
        assert float(test.p_value[1]) == pytest.approx(drawn.pvalue, abs=0.015)

    def test_drawn_agrees_with_exact(self, monkeypatch, device):
        a, b = torch.rand(2, 6, 15, device=device) + torch.linspace(0, 0.4, 6, device=device)[:, None], 0.5
        b = torch.full((15,), b, device=device)  # broadcast
        for alternative in ALTERNATIVES:
            exact = paired_randomisation(a, b, alternative=alternative)
            with monkeypatch.context() as patch:
                patch.setattr(uncertainty, "ENUMERATED", 0)
                drawn = paired_randomisation(a, b, 40_000, alternative=alternative, seed=0)
            np.testing.assert_allclose(drawn.p_value.cpu(), exact.p_value.cpu(), atol=0.012)

    @pytest.mark.parametrize("pieces", [1, 7])
    def test_pieces_change_nothing(self, monkeypatch, pieces, device):
        a, b = torch.rand(2, 3, 100, device=device)
        whole = paired_randomisation(a, b, 500, seed=0)
        monkeypatch.setattr(uncertainty, "_rows", lambda *_: pieces)
        assert torch.equal(paired_randomisation(a, b, 500, seed=0).p_value, whole.p_value)

    def test_signs_are_fair_and_independent(self, device):
        signs = torch.cat(list(uncertainty._random_signs(4000, 130, 1, torch.tensor(5, device=device))))
        assert signs.shape == (4000, 130) and set(signs.unique().tolist()) == {0, 1}
        correlation = torch.corrcoef(signs.T) - torch.eye(130, device=device)
        assert (signs.mean(0) - 0.5).abs().max() < 0.04 and correlation.abs().max() < 0.09

    def test_groups_flip_together(self, device):
        a = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.5], device=device)
        groups = torch.tensor([3, 3, 1, 1, 0], device=device)
        test = paired_randomisation(a, torch.zeros_like(a), groups=groups, alternative="greater")
        assert float(test.p_value) == exact_p([1.5, 1.0, 0.5], "greater") == 1 / 8

    def test_nan_pairs_and_no_difference(self, device):
        nan = math.nan
        a = torch.tensor([[1.0, nan, 0.5, 1.0], [0.5] * 4, [nan] * 4], device=device)
        b = torch.tensor([[0.0, 0.5, nan, 0.5], [0.5] * 4, [0.5] * 4], device=device)
        test = paired_randomisation(a, b)
        assert test.p_value.tolist() == [0.5, 1.0, 1.0]
        assert test.difference[:2].tolist() == [0.75, 0.0] and test.difference[2].isnan()
        assert paired_randomisation(a[:0], b[:0]).p_value.shape == (0,)

    def test_size_under_the_null(self, generator):
        a, b = torch.rand(2, 2000, 30, generator=generator)
        p_value = paired_randomisation(a, b, 999, seed=0).p_value
        for level in (0.01, 0.05, 0.2):
            share = float((p_value <= level).double().mean())
            assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / 2000)


def test_bad_input(device):
    x = torch.zeros(3, device=device)
    for call, message in (
        (lambda: bootstrap(x, method="bc"), "method: got 'bc', wanted one of 'percentile', 'basic', 'bca'"),
        (lambda: bootstrap(x, 0), "replicates: got 0, wanted an integer >= 1"),
        (lambda: bootstrap(x, confidence=1.0), "confidence: got 1.0, wanted a number between 0 and 1"),
        (lambda: bootstrap(x[0]), "scores: got shape (), wanted (..., Q)"),
        (lambda: bootstrap(x, groups=x[:2]), "groups: got shape (2,), wanted (3,)"),
        (
            lambda: bootstrap(x, groups=x / 0),
            "groups: 3 of 3 rows hold NaN or infinity, the first is row 0; wanted finite values",
        ),
        (
            lambda: bootstrap(x, groups=x.to("meta")),
            f"devices differ: scores on {device}, groups on meta; move them with .to(device)",
        ),
        (
            lambda: paired_randomisation(x, x, alternative="more"),
            "alternative: got 'more', wanted one of 'two-sided', 'greater', 'less'",
        ),
        (lambda: paired_randomisation(x, x, 0), "replicates: got 0, wanted an integer >= 1"),
        (lambda: paired_randomisation(x, x[:2]), "b: got shape (2,), wanted (..., 3)"),
        (
            lambda: paired_randomisation(x, x.to("meta")),
            f"devices differ: a on {device}, b on meta; move them with .to(device)",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()
