"""The draws of the native operators in torch, in float64: they answer where nothing was built, and are the oracle."""

import math
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...core.numbers.exact_sums import doubling_sums, index_add
from ...core.numbers.philox import MASK_32, Lanes, philox4x32
from .stick_breaking import draw_wrong_answers, in_groups

SCRATCH_CELLS = defaultdict(lambda: 2**22, cpu=2**18)  # device -> variates at a time, 250 bytes of scratch each
ITEMS = 1024  # at a time
BOOST = 2**31  # attempt number of the draw that boosts a shape below 1
ATTEMPTS = 64  # a proposal is rejected with probability 0.05 at most, all of them with 0.05^64


def log_gamma(out: Tensor, alpha: Tensor, keys: Tensor, start: int) -> None:
    # out: (E, R, K, S)  alpha: (E, R, K)  keys: (E, 2)
    for part, sample in _lengths(start, out.shape[-1], alpha.numel(), out.device):
        out[..., part] = draw_log_gamma(alpha, keys, sample).movedim(0, -1)


def dirichlet_sums(
    out: Tensor,  # (E, F, S), F = 2 C or 4 C + W: tp, fn, fp, tn and weighted forms, each (E, ., S)
    prevalence: Tensor,  # (E, C)
    cells: Tensor,  # (E, C, C)
    weights: Tensor | None,  # (W, C, C)
    keys: Tensor,  # (E, 3, 2): prevalence, split, errors
    start: int,
) -> None:
    E, F, S = out.shape
    C = cells.shape[-1]
    off_diagonal = without_diagonal(cells)
    split = torch.stack([cells.diagonal(dim1=-2, dim2=-1), off_diagonal.sum(-1)], -1)  # (E, C, 2): right or wrong
    prevalence_keys, split_keys, error_keys = keys.unbind(1)
    for part, sample in _lengths(start, S, E * (2 * C if F == 2 * C else C * C), out.device):
        prevalences = _normalized_gammas(prevalence[:, None], prevalence_keys, sample).transpose(-2, -1)  # (s, E, C, 1)
        tp, fn = (prevalences * _normalized_gammas(split, split_keys, sample)).unbind(-1)
        fields = [tp, fn]
        if F > 2 * C:
            wrong = _draw_errors(fn, off_diagonal, error_keys, sample)
            fields += column_sums(tp, wrong)
        if weights is not None:
            fields.append(torch.einsum("wij,seij->sew", weights, wrong + torch.diag_embed(tp)))
        out[..., part] = torch.cat(fields, -1).movedim(0, -1)


def item_sums(out: Tensor, cells: Tensor, key: Tensor, start: int) -> None:
    # out: (E, K, S) float64  cells: (E, N) in [0, K)  key: (2,)
    """Sum the weights of the items in each cell; the weight of an item is -ln u in all experiments."""
    E, K, S = out.shape
    sums = out.zero_().view(E * K, S)
    rows = cells + K * torch.arange(E, device=cells.device)[:, None]
    for first in range(0, cells.shape[1], ITEMS):
        index = rows[:, first : first + ITEMS]
        n = index.shape[1]
        block = torch.arange(first // 4, (first + n + 3) // 4, device=cells.device)[:, None]
        for part, sample in _lengths(start, S, E * n, out.device):
            random_bits = philox4x32((sample & MASK_32, block, 0, sample >> 32), key.unbind())
            weights = -_uniform(torch.stack(random_bits, 1)).log().flatten(0, 1)[:n]  # (n, s)
            index_add(sums[:, part], 0, index.flatten(), weights.repeat(E, 1))


def uniforms(out: Tensor, key: Tensor, draw: int) -> None:
    # out: (n,) float64  key: (2,)
    """Draw numbers in (0, 1), four from each block; `draw` counts the calls of one stream."""
    for part, counter in _lengths(0, (len(out) + 3) // 4, 4, out.device):
        random_bits = philox4x32((draw, counter, torch.zeros_like(counter), 0), key.unbind())
        filled = out[4 * part.start : 4 * part.stop]
        filled.copy_(_uniform(torch.stack(random_bits, -1)).flatten()[: len(filled)])


def column_sums(tp: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    # tp: (..., C)  wrong: (..., C, C), 0 on its diagonal  ->  fp and tn: (..., C)
    return wrong.sum(-2), _sum_of_others(tp) + without_diagonal(_sum_of_others(wrong)).sum(-2)


def without_diagonal(matrices: Tensor) -> Tensor:  # (..., C, C) -> (..., C, C)
    return matrices * (1 - torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device))


def _sum_of_others(x: Tensor) -> Tensor:  # (..., C) -> (..., C)
    """Return for each entry the sum of the others, without subtraction, which would lose small sums."""
    before = doubling_sums(pad(x[..., :-1], (1, 0)))
    after = doubling_sums(pad(x[..., 1:], (0, 1)).flip(-1)).flip(-1)
    return before + after


def _normalized_gammas(alpha: Tensor, keys: Tensor, sample: Tensor) -> Tensor:
    # alpha: (E, R, K)  keys: (E, 2)  sample: (s,)  ->  (s, E, R, K), rows sum to 1, or to 0 where no alpha is positive
    # and nan where one is no shape
    fractions = draw_log_gamma(alpha, keys, sample).softmax(-1)
    return torch.where((alpha == 0).all(-1, keepdim=True), 0, fractions)


def _draw_errors(wrong: Tensor, alpha: Tensor, keys: Tensor, sample: Tensor) -> Tensor:
    # wrong: (s, E, C)  alpha: (E, C, C)  keys: (E, 2)  sample: (s,)  ->  (s, E, C, C)
    """Distribute the errors of each row; in a group of its cells only the largest masses are drawn."""
    group = in_groups(alpha)
    if group is None:
        return wrong[..., None] * _normalized_gammas(alpha, keys, sample)
    logs = draw_log_gamma(alpha.masked_fill(group, 0), keys, sample)
    return draw_wrong_answers(wrong, logs, alpha, group, keys, sample)


def _lengths(start: int, replicates: int, cells: int, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of [0, replicates) with their sample numbers; `cells` variates per sample fit the scratch memory."""
    step = max(1, SCRATCH_CELLS[device.type] // max(1, cells))
    for first in range(0, replicates, step):
        last = min(first + step, replicates)
        yield slice(first, last), torch.arange(start + first, start + last, device=device)


def draw_log_gamma(
    alpha: Tensor,  # (E, R, K) float64, finite, >= 0; others give nan
    keys: Tensor,  # (E, 2)
    sample: Tensor,  # (S,) sample numbers
) -> Tensor:  # (S, E, R, K)
    """Draw log Gamma; cell (r, k) has counter r * K + k, K rounded up to even; two cells share a Philox block."""
    E, R, K = alpha.shape
    pairs = pad(alpha, (0, K % 2)).reshape(E, R * ((K + 1) // 2), 2)
    experiment, pair = pairs.any(-1).nonzero(as_tuple=True)  # two zeros cost no draw
    out = alpha.new_full((len(sample), *pairs.shape), -math.inf)
    out[:, experiment, pair] = _marsaglia_tsang(pairs[experiment, pair], pair, keys[experiment], sample)
    return out.view(len(sample), E, R, K + K % 2)[..., :K]


def _marsaglia_tsang(
    alpha: Tensor,  # (P, 2)
    pair: Tensor,  # (P,)
    keys: Tensor,  # (P, 2)
    sample: Tensor,  # (S,)
) -> Tensor:  # (S, P, 2)
    d = torch.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    lane = torch.arange(2, device=alpha.device)
    random_bits = _block(0, sample[:, None], pair, keys)
    log_v, accepted = _propose(d, lane, *(bits.unsqueeze(-1) for bits in random_bits))
    s, p, k = (~accepted).nonzero(as_tuple=True)
    attempt = 1
    while len(s) and attempt < ATTEMPTS:
        log_v[s, p, k], accepted = _propose(d[p, k], k, *_block(attempt, sample[s], pair[p], keys[p]))
        s, p, k = s[~accepted], p[~accepted], k[~accepted]
        attempt += 1
    log_v[s, p, k] = math.nan
    log_gamma = d.log() + 3 * log_v
    (low,) = (alpha < 1).any(-1).nonzero(as_tuple=True)
    random_bits = _block(BOOST, sample[:, None], pair[low], keys[low])
    boost = torch.stack([_uniform(bits).log() for bits in random_bits[:2]], -1) / alpha[low]
    log_gamma[:, low] += torch.where(alpha[low] < 1, boost, 0)
    return log_gamma


def _block(attempt: int, sample: Tensor, pair: Tensor, keys: Tensor) -> Lanes:
    # sample: (S, 1)  pair: (P,)  keys: (P, 2)  ->  four (S, P) of 32 bits; for single cells all three begin with (n,)
    return philox4x32((sample & MASK_32, pair, attempt, sample >> 32), keys.unbind(-1))


def _uniform(bits: Tensor) -> Tensor:
    return (bits.double() + 0.5) * 2**-32


def _propose(d: Tensor, lane: Tensor, *random_bits: Tensor) -> tuple[Tensor, Tensor]:
    # d: (P, 2)  lane: (2,)  random_bits: (S, P, 1) each  ->  (S, P, 2); for single cells all are (n,)
    """Return the logarithm of a proposed (Gamma / d)^(1/3), and whether it is accepted."""
    u = [_uniform(bits) for bits in random_bits]
    radius, angle = (-2 * u[0].log()).sqrt(), 2 * math.pi * u[1]
    y = radius * torch.where(lane == 0, angle.cos(), angle.sin()) / (9 * d).sqrt()
    log_v = y.log1p()  # nan or -inf where 1 + y <= 0; neither is accepted
    y2, minus_y = y * y, -y
    series = torch.full_like(y, 1 / 16)  # terms after y^16 are below 1e-11 for |y| < 1/4
    for n in range(15, 3, -1):
        series.mul_(minus_y).add_(1 / n)
    bracket = torch.where(y.abs() < 0.25, -y2 * y2 * series, log_v - y + y2 / 2 - y2 * y / 3)
    return log_v, torch.where(lane == 0, u[2], u[3]).log() < 3 * d * bracket
