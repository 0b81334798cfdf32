"""Dirichlet and gamma variates in log space, each a function of its address (key, cell, sample) alone."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import _checks
from ._philox import WORD, philox4x32, philox_key

STRATEGIES = {
    **dict.fromkeys(("bayes-laplace", "bayes", "laplace", "ones", "one"), 1.0),
    **dict.fromkeys(("jeffreys", "jeffrey", "halves", "half"), 0.5),
    **dict.fromkeys(("haldane", "zeros", "zero"), 0.0),
}
DTYPES = torch.float32, torch.float64
SCRATCH_CELLS = defaultdict(lambda: 2**22, cpu=2**18)  # device -> variates at a time, 250 bytes of scratch each
BOOST = 2**31  # the attempt number whose words lift a shape below 1


def dirichlet_prior(strategy: Any, shape: tuple[int, ...], *, argument: str = "strategy") -> Tensor:
    """Prior concentrations (float64) of `shape`, the last axis being the one that is drawn.

    `strategy`: a number >= 0 for every cell; an array of `shape`, up to axes of size 1, with finite entries >= 0; or
    "bayes-laplace" (also bayes, laplace, ones, one) 1, "jeffreys" (jeffrey, halves, half) 1/2, "haldane" (zeros, zero)
    0, "perks" 1 / (size of the last axis), which adds one observation per row for any number of classes.
    `argument` is what errors (ValueError) call it.
    """
    if isinstance(strategy, str):
        _checks.one_of(argument, strategy, ("perks", *STRATEGIES))
        strategy = STRATEGIES[strategy] if strategy != "perks" else 1 / shape[-1]
    prior = torch.as_tensor(strategy, dtype=torch.float64)
    non_negative(argument, prior)
    if prior.ndim == 0:
        return prior.expand(shape)
    if prior.squeeze().shape != torch.Size(size for size in shape if size != 1):
        raise ValueError(f"{argument}: got an array of shape {tuple(prior.shape)}, wanted {tuple(shape)}")
    return prior.reshape(shape)


def sample_log_gamma(
    alpha: Tensor,  # (..., K)
    num_samples: int,
    *,
    seed: int = 0,
    name: str = "",
    method: str = "posterior",
    stream: str = "prevalence",
    start: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # (S, ..., K)
    """Logarithms of Gamma(alpha, 1) variates, S = `num_samples`, from Marsaglia & Tsang's method.

    A variate depends on its address alone: the words `seed`, `name`, `method`, `stream`, its place in `alpha` and its
    sample number, which runs from `start`. Shards join: [0, 5) and [5, 9) are [0, 9). alpha = 0 gives -inf.
    The arithmetic is float64; `dtype` is that of the result, float32 or float64.

    Raises ValueError for a negative or non-finite alpha. Reference: doi:10.1145/358407.358414.
    """
    _checks.shape("alpha", alpha, "...", "K")
    _checks.one_of("dtype", dtype, DTYPES)
    num_samples = _checks.integer_at_least("num_samples", num_samples, 0)
    rows = alpha.double().reshape(1, math.prod(alpha.shape[:-1]), alpha.shape[-1])
    non_negative("alpha", rows)
    keys = stream_keys(seed, [name], method, stream, alpha.device)
    out = torch.empty(num_samples, *alpha.shape, dtype=dtype, device=alpha.device)
    for part, sample in chunks(start, num_samples, alpha.numel(), alpha.device):
        out[part] = draw_log_gamma(rows, keys, sample).reshape(len(sample), *alpha.shape)
    return out


def sample_dirichlet(
    alpha: Tensor,  # (..., K)
    num_samples: int,
    *,
    dtype: torch.dtype = torch.float32,
    **address: Any,
) -> Tensor:  # (S, ..., K)
    """Dirichlet(alpha) vectors, each summing to 1: the softmax of `sample_log_gamma`, whose arguments it takes.

    Any alpha > 0 gives finite vectors, alpha = 0 an exact 0, a row of nothing but zeros nan.
    """
    _checks.one_of("dtype", dtype, DTYPES)
    return sample_log_gamma(alpha, num_samples, dtype=torch.float64, **address).softmax(-1).to(dtype)


def stream_keys(seed: int, names: Iterable[str], method: str, stream: str, device: torch.device) -> Tensor:  # (E, 2)
    seed = _checks.integer_at_least("seed", seed, 0)
    keys = [philox_key(seed, name, method, stream) for name in names]
    return torch.tensor(keys, dtype=torch.int64, device=device).reshape(-1, 2)


def chunks(start: int, num_samples: int, cells: int, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    """Parts of [0, num_samples) with their sample numbers; `cells` variates per sample fit the scratch memory."""
    start = _checks.integer_at_least("start", start, 0)
    step = max(1, SCRATCH_CELLS[device.type] // max(1, cells))
    for first in range(0, num_samples, step):
        last = min(first + step, num_samples)
        yield slice(first, last), torch.arange(start + first, start + last, device=device)


def non_negative(name: str, tensor: Tensor) -> None:
    if not torch.all((tensor >= 0) & tensor.isfinite()):
        raise ValueError(f"{name}: got entries from {tensor.min()} to {tensor.max()}, wanted finite ones >= 0")


def draw_log_gamma(
    alpha: Tensor,  # (E, R, K) float64, finite, >= 0
    keys: Tensor,  # (E, 2)
    sample: Tensor,  # (S,) sample numbers
) -> Tensor:  # (S, E, R, K)
    """Cell (r, k) has number r * K + k, with K rounded up to even; two neighbouring cells share a Philox block."""
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
    words = _block(0, sample[:, None], pair, keys)
    log_v, accepted = _propose(d, lane, *(word.unsqueeze(-1) for word in words))
    s, p, k = (~accepted).nonzero(as_tuple=True)
    attempt = 1
    while len(s):
        log_v[s, p, k], accepted = _propose(d[p, k], k, *_block(attempt, sample[s], pair[p], keys[p]))
        s, p, k = s[~accepted], p[~accepted], k[~accepted]
        attempt += 1
    log_gamma = d.log() + 3 * log_v
    (low,) = (alpha < 1).any(-1).nonzero(as_tuple=True)
    words = _block(BOOST, sample[:, None], pair[low], keys[low])
    boost = torch.stack([_uniform(word).log() for word in words[:2]], -1) / alpha[low]
    log_gamma[:, low] += torch.where(alpha[low] < 1, boost, 0)
    return log_gamma


def _block(attempt: int, sample: Tensor, pair: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # sample: (S, 1)  pair: (P,)  keys: (P, 2)  ->  four words (S, P); for single cells all three begin with (n,)
    return philox4x32((sample & WORD, pair, attempt, sample >> 32), keys.unbind(-1))


def _uniform(word: Tensor) -> Tensor:
    return (word.double() + 0.5) * 2**-32


def _propose(d: Tensor, lane: Tensor, *words: Tensor) -> tuple[Tensor, Tensor]:
    # d: (P, 2)  lane: (2,)  words: (S, P, 1) each  ->  (S, P, 2); for single cells all are (n,)
    """The logarithm of a proposed (Gamma / d)^(1/3), and whether it is accepted."""
    u = [_uniform(word) for word in words]
    radius, angle = (-2 * u[0].log()).sqrt(), 2 * math.pi * u[1]
    y = radius * torch.where(lane == 0, angle.cos(), angle.sin()) / (9 * d).sqrt()
    log_v = y.log1p()  # nan or -inf where 1 + y <= 0; neither is accepted
    y2, minus_y = y * y, -y
    series = torch.full_like(y, 1 / 16)  # what follows y^16 is below 1e-11 for |y| < 1/4
    for n in range(15, 3, -1):
        series.mul_(minus_y).add_(1 / n)
    bracket = torch.where(y.abs() < 0.25, -y2 * y2 * series, log_v - y + y2 / 2 - y2 * y / 3)
    return log_v, torch.where(lane == 0, u[2], u[3]).log() < 3 * d * bracket
