"""Quantile functions of truncated distributions, which turn uniform variates into truncated ones by inversion.

The normal is computed in logarithms, the others from tables (see `log_concave`), within 1e-8 for u between 1e-15 and
1 - 1e-8. Results lie in [low, high], and are nan where that is empty or an argument is nan.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .log_concave import Tabulated, quantile, tabulate
from .moments import TILE

FAR = -600.0  # logarithms of probabilities below this have no quantile in float64
MIN_INTERPOLATED = 2**16  # variates of one distribution from which cubics are used: more than these have nodes
OCTAVES, FINE = 33, 6  # u >= 2^-33, as the random ones are, in cells of 1/64 to the power of two
NODES = 0.0, 0.25, 0.75, 1.0  # of a cell


def truncated_normal_icdf(u: Tensor, mean: Tensor, sd: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Compute quantiles of a normal distribution restricted to [low, high], also if its mean is far away.

    Shapes: u: (S, ...) in [0, 1]; mean, sd, low, high: (...) -> (S, ...).
    """
    u, mean, sd = _broadcast(u, mean, sd)
    a, b = (low - mean) / sd, (high - mean) / sd
    upper = a > 0  # mirrored, because log_ndtr is precise in the lower tail
    a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
    log_b = torch.special.log_ndtr(b)
    ratio = (torch.special.log_ndtr(a) - log_b).exp()

    near = bool((log_b > FAR / 2).all())  # the usual case

    def invert(u: Tensor) -> Tensor:
        u = torch.where(upper, 1 - u, u)
        p = u + (1 - u) * ratio
        z = torch.special.ndtri(log_b.exp() * p) if near else _normal_quantile(log_b + p.log())
        return torch.where(sd == 0, mean, mean + torch.where(upper, -sd, sd) * z)

    return _clamp_(interpolated(invert, u), low, high)


def truncated_t_icdf(
    u: Tensor, df: Tensor | float, loc: Tensor, scale: Tensor, low: Tensor | float, high: Tensor | float
) -> Tensor:
    """Compute quantiles of loc + scale * t restricted to [low, high] for Student's t with `df` degrees of freedom.

    Shapes: u: (S, ...) in [0, 1]; the others: (...) -> (S, ...).
    """
    u, loc, scale = _broadcast(u, loc, scale)
    root = _as_tensor(df, loc).sqrt()
    low_y, high_y = (((end - loc) / (scale * root)).nan_to_num(0).asinh() for end in (low, high))
    table = tabulate(log_t_density(df), torch.zeros_like(low_y), low_y, high_y)
    return _clamp_(_quantiles(table, u).sinh_().mul_(scale * root).add_(loc), low, high)


def truncated_gamma_icdf(
    u: Tensor, shape: Tensor, scale: Tensor, low: Tensor | float = 0.0, high: Tensor | float = math.inf
) -> Tensor:
    """Compute quantiles of a gamma distribution restricted to [low, high], low >= 0.

    Shapes: u: (S, ...) in [0, 1]; the others: (...) -> (S, ...).
    """
    u, shape, scale = _broadcast(u, shape, scale)
    k = shape[..., None]
    low_y, high_y = ((end / scale).log() for end in (low, high))
    table = tabulate(lambda y: k * y - y.exp(), shape.log(), low_y, high_y)
    return _clamp_(_quantiles(table, u).exp_().mul_(scale), low, high)


def beta_icdf(u: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute quantiles of a beta distribution.

    Shapes: u: (S, ...) in [0, 1]; a, b: (...) -> (S, ...).
    """
    u, a, b = _broadcast(u, a, b)
    wide = torch.full_like(a, math.inf)
    a1, b1 = a[..., None], b[..., None]
    table = tabulate(lambda y: -a1 * softplus(-y) - b1 * softplus(y), (a / b).log(), -wide, wide)
    return _quantiles(table, u).sigmoid_()


def _broadcast(u: Tensor, *parameters: Tensor) -> list[Tensor]:
    # u: (S, ...)  parameters: (...)  ->  u (S, ...) and parameters (...) float64
    batch_shape = torch.broadcast_shapes(u.shape[1:], *(value.shape for value in parameters))
    u = u.reshape(len(u), *[1] * (len(batch_shape) - u.ndim + 1), *u.shape[1:]).expand(-1, *batch_shape)
    return [u, *(value.double().expand(batch_shape) for value in parameters)]


def interpolated(exact: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    # exact: (n, ...) -> (n, ...), by element  u: (S, ...) in [0, 1]  ->  (S, ...)
    """Compute `exact(u)`, for many u by cubics: within 1e-9 for functions that are smooth in ln u and ln(1 - u).

    Exponent and first bits of min(u, 1 - u) are the index of its cell: u and 1 - u are exact at the nodes, and no
    search is needed.
    """
    u = u.double()
    tile = max(1, TILE[u.device.type] // max(1, u[:1].numel()))
    if min(len(u), u.numel()) < MIN_INTERPOLATED or not _within(u, 2.0**-OCTAVES):
        return torch.cat([exact(part) for part in u.split(tile)])
    shift = 52 - FINE
    first, last = (
        torch.tensor(end, dtype=torch.float64, device="cpu").view(torch.int64) >> shift for end in (2.0**-OCTAVES, 0.5)
    )
    edges = (torch.arange(int(first), int(last) + 2, device=u.device) << shift).view(torch.float64)
    positions = u.new_tensor(NODES)
    nodes = edges[:-1, None] + edges.diff()[:, None] * positions  # (cells, 4)
    nodes = torch.stack([nodes, 1 - nodes]).flatten()
    values = exact(nodes.view(-1, *[1] * (u.ndim - 1)).expand(-1, *u.shape[1:])).reshape(len(nodes) // 4, 4, -1)
    powers = positions[1:, None] ** torch.arange(1, 4, device=u.device)
    cubics = torch.cat([values[:, :1], torch.linalg.solve(powers, values[:, 1:] - values[:, :1])], 1)
    cubics = cubics.permute(2, 0, 1).reshape(-1, 4)  # by distribution, side and cell
    cells = len(edges) - 1
    offset = 2 * cells * torch.arange(values.shape[-1], device=u.device).view(u.shape[1:]) - int(first)
    out = torch.empty_like(u)
    for part, target in zip(u.split(tile), out.split(tile), strict=True):
        bits = torch.minimum(part, 1 - part).contiguous().view(torch.int64)
        cell = (bits >> shift) + offset + cells * (part > 0.5)
        t = (bits & (2**shift - 1)).double() * 2.0**-shift
        c0, c1, c2, c3 = cubics.index_select(0, cell.flatten()).view(*part.shape, 4).unbind(-1)
        torch.addcmul(c0, t, c1.addcmul(t, c2.addcmul(t, c3)), out=target)
    return out


def _within(u: Tensor, edge: float) -> bool:
    minimum, maximum = u.aminmax()
    return bool((minimum >= edge) & (maximum <= 1 - edge))


def _quantiles(table: Tabulated, u: Tensor) -> Tensor:
    return interpolated(lambda u: quantile(table, u), u)


def log_t_density(df: Tensor | float) -> Callable[[Tensor], Tensor]:
    """Return the log density of y = asinh(t / sqrt(df)), up to a constant: -df * ln cosh y."""
    # A number stays on the host: a copy to the device would synchronize.
    df = df[..., None] if isinstance(df, Tensor) else df
    return lambda y: -df * (y.abs() + (-2 * y.abs()).exp().log1p() - math.log(2))


def _normal_quantile(log_p: Tensor) -> Tensor:
    """Compute the normal quantile of a probability from its logarithm."""
    z = torch.special.ndtri(log_p.exp())
    far = (log_p < FAR) & (log_p > -math.inf)
    goal = log_p[far]
    tail = -(-2 * goal - (-4 * math.pi * goal).log()).sqrt()  # log_ndtr(z) is near -z^2 / 2 - ln(-z sqrt(2 pi))
    for _ in range(4):  # Newton's method
        log_mass = torch.special.log_ndtr(tail)
        log_slope = -tail.square() / 2 - math.log(2 * math.pi) / 2 - log_mass
        tail = tail - (log_mass - goal) * (-log_slope).exp()
    return z.masked_scatter(far, tail)


def _clamp_(x: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    low, high = (_as_tensor(end, x) for end in (low, high))
    nowhere = (low > high) | (low == math.inf) | (high == -math.inf)
    return x.clamp_(torch.where(nowhere, math.nan, low), high)


def _as_tensor(value: Tensor | float, like: Tensor) -> Tensor:
    # A number is filled in on the device: a copy from the host would synchronize.
    return value.to(like) if isinstance(value, Tensor) else like.new_full((), value)
