"""Draws of the strengths of models, under weights of the battles and of imagined ones."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...core.native.device_cache import cached_per_device
from ...core.numbers.philox import philox4x32, philox_key
from ...core.resampling.draws import log_gamma_quantiles
from ...core.resampling.resampling import Resampled
from ...core.resampling.units import group_size, unit_counts, units_of_values
from ...core.resampling.weights import fingerprint
from ..statistics.truncated import beta_icdf
from .bradley_terry import Battles, fit
from .outcomes import BattleTable

EQUAL = 1e-9  # strengths that differ by less are equal up to rounding
LEVELS = 2**12  # quantiles of the distribution of imagined wins
MAX_LOG_NU = 5.0  # from which replicates of ties alone start
SMALLEST_WIN = 1e-5  # imagined wins below it count as it, so that strengths are finite


def resampled_strengths(
    table: BattleTable,
    observed: Tensor,  # (K + 1,), strengths and nu
    has_ties: bool,
    replicates: int,
    seed: int,
) -> Resampled:
    """Draw strengths and nu, which replace sums: all results of the models are computed from them."""
    start = torch.cat([observed[:-1], observed[-1:].log().clamp(max=MAX_LOG_NU)])
    chunks, count = list(table.weighted_counts(replicates, seed, has_ties)), len(table.models)
    imagined = group_size(table.names.units) * _imagined_wins(count, replicates, seed).to(observed)
    weighted = torch.cat([
        with_nu(fit(Battles(counts.wins + wins, counts.ties), None, start))
        for (counts, sizes), wins in zip(chunks, imagined.split([len(sizes) for _, sizes in chunks]), strict=True)
    ])  # fmt: skip
    units, (wins, ties) = units_of_values(table.names.units), table.counts(ties=True)
    if units is not None and len(units.ids) == len(table.first) and count == 2 and not bool(ties.any()):
        weighted = _quantiles_of_two(weighted, wins)
    if units is not None:
        units = units._replace(rows=observed.new_zeros(len(units.ids), len(observed)))
    return Resampled(
        observed=observed,
        weighted=weighted,
        half=None,
        read=lambda parameters: parameters,
        items=fingerprint(*table.names.columns(table.first * count + table.second)),
        units=units,
        num_items=len(table.first),
        sizes=torch.cat([sizes for _, sizes in chunks]),
        seed=seed,
        is_smooth=False,
        has_pseudo_items=True,
        unit_counts=unit_counts(table.names.units) if units is None else None,
    )


def _quantiles_of_two(draws: Tensor, wins: Tensor) -> Tensor:
    # draws: (R, 3), strengths and nu = 0  wins: (2, 2)  ->  (R, 3)
    """Return the quantiles of the law of the draws in their order: the win rate of two models is beta distributed."""
    uniforms = (draws[:, 0].argsort().argsort().double() + 0.5) / len(draws)
    half = beta_icdf(uniforms, wins[0, 1] + 0.5, wins[1, 0] + 0.5).logit() / 2
    return torch.stack([half, -half, draws[:, 2]], 1)


def _imagined_wins(count: int, replicates: int, seed: int) -> Tensor:
    # ->  (R, K, K)
    """Draw wins for each ordered pair of models, of Gamma(1 / (2 (K - 1))) mass: one imagined battle for each model.

    For two models the draws of the win rate are those of Jeffreys' interval, whose prior removes the bias of
    strengths (Firth 1993, doi:10.1093/biomet/80.1.27).
    """
    pairs = count * (count - 1)
    blocks, index = (torch.arange(size, device="cpu") for size in (-(-pairs // 4), replicates))
    lanes = philox4x32((blocks, index[:, None], 0, 0), philox_key(seed, "battles", "draws", "imagined"))
    order = torch.stack(lanes, -1).flatten(1)[:, :pairs].argsort(0).argsort(0)
    levels = (2 * order + 1) * LEVELS // (2 * replicates)  # each part of the distribution is drawn once
    wins = torch.zeros(replicates, count, count, dtype=torch.float64, device="cpu")
    masses = _imagined_masses(wins, 1 / (2 * max(count - 1, 1)))
    wins[:, ~torch.eye(count, dtype=torch.bool, device="cpu")] = masses[levels]
    return wins


@cached_per_device
def _imagined_masses(device: torch.device, shape: float) -> Tensor:
    # ->  (LEVELS,) quantiles of Gamma(shape)
    target = (torch.arange(LEVELS, device=device).double() + 0.5) / LEVELS
    return log_gamma_quantiles(target.new_tensor(shape), target).exp().clamp(min=SMALLEST_WIN)


def with_nu(parameters: Tensor) -> Tensor:
    # parameters: (..., K + 1), strengths and log nu  ->  (..., K + 1), strengths and nu
    return torch.cat([parameters[..., :-1], parameters[..., -1:].exp()], -1)


def difference_of(factor: float, i: Tensor, j: Tensor) -> Callable[[Tensor], Tensor]:
    # i, j: (V,) int64
    def read(parameters: Tensor) -> Tensor:
        # (..., K + 1)  ->  (..., V)
        difference = parameters[..., i] - parameters[..., j]
        return factor * difference.masked_fill(difference.abs() <= EQUAL, 0)

    return read


def probabilities_of(i: int, j: int) -> Callable[[Tensor], Tensor]:
    def read(parameters: Tensor) -> Tensor:
        # (..., K + 1)  ->  (..., 3), of a win of i, a tie and a win of j
        odds = ((parameters[..., i] - parameters[..., j]) / 2).exp()
        weights = torch.stack([odds, parameters[..., -1].expand_as(odds), 1 / odds], -1)
        return weights / weights.sum(-1, keepdim=True)

    return read
