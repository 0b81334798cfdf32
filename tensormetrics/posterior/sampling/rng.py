"""Random numbers for extensions: functions of a key and of the number of earlier draws, on any device."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.exact_sums import cumulative_mass
from ...core.numbers.philox import random_key
from . import operators
from .dirichlet import non_negative, sample_log_gamma, stream_keys

Size = int | Sequence[int]


class RNG:
    """A stream of random numbers that `seed` and `name` determine. Results are float64 tensors on `device`.

    >>> rng = RNG(0, "mine")
    >>> rng.uniform(size=3).shape, bool((RNG(0, "mine").random(4) == RNG(0, "mine").random(4)).all())
    (torch.Size([3]), True)
    """

    def __init__(self, seed: int, name: str = "", *, device: torch.device | str = "cpu") -> None:
        self.name, self.device = name, torch.device(device)
        self.seed = seed

    def __repr__(self) -> str:
        return f"RNG(seed={self.seed}, name={self.name!r})"

    @property
    def seed(self) -> int:
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        """Set the seed, which restarts the stream."""
        self._seed = checks.check_int("seed", seed, 0)
        self._keys = stream_keys(seed, [self.name], "rng", "", self.device)  # (1, 2)
        self._draws = 0

    def random(self, size: Size = ()) -> Tensor:
        """Draw from the uniform distribution on (0, 1)."""
        shape = _shape(size)
        out = torch.empty(math.prod(shape), dtype=torch.float64, device=self.device)
        operators.uniforms(out, self._keys[0], self._next())
        return out.view(shape)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Size = ()) -> Tensor:
        return low + (high - low) * self.random(size)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Size = ()) -> Tensor:
        return loc + scale * torch.special.ndtri(self.random(size))

    def standard_gamma(self, alpha: float | Tensor, size: Size | None = None) -> Tensor:
        """Draw from Gamma(alpha, 1); `size`, by default the shape of `alpha`, is one that `alpha` broadcasts to."""
        alpha = torch.as_tensor(alpha, dtype=torch.float64, device=self.device)
        shape = tuple(alpha.shape) if size is None else _shape(size)
        leading = len(shape) - alpha.ndim
        if leading < 0 or any(n not in (1, expected) for n, expected in zip(alpha.shape, shape[leading:], strict=True)):
            raise ValueError(f"size: got {shape}, wanted a shape that alpha {tuple(alpha.shape)} broadcasts to")
        alpha = alpha.expand(shape[leading:])
        count = math.prod(shape[:leading])  # of samples for each alpha
        sampled = sample_log_gamma(
            alpha.reshape(-1),
            count,
            dtype=torch.float64,
            seed=self.seed,
            name=self.name,
            method="rng",
            stream=str(self._next()),
        )
        return sampled.exp().reshape(shape)

    def choice(
        self, values: Tensor | Sequence[float], size: Size = (), p: Tensor | Sequence[float] | None = None
    ) -> Tensor:
        """Draw values with replacement, with the probabilities `p` or equal ones.

        Shapes: values, p: (N,).
        """
        values = torch.as_tensor(values, device=self.device)
        p = values.new_ones(len(values), dtype=torch.float64) if p is None else checks.as_tensor(p, torch.float64)
        non_negative("p", p)
        edges = cumulative_mass(p.to(self.device))
        return values[torch.searchsorted(edges, self.random(size) * edges[-1], right=True).clamp(max=len(values) - 1)]

    def spawn(self, n: int) -> "list[RNG]":
        """Return n independent streams, which do not depend on earlier draws."""
        return [RNG(self.seed, f"{self.name}/{i}", device=self.device) for i in range(n)]

    def numpy(self) -> np.random.Generator:
        """Return a NumPy generator that is seeded by the next draw."""
        return np.random.default_rng(self._entropy())

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a torch generator that is seeded by the next draw."""
        return torch.Generator(device).manual_seed(self._entropy() >> 1)

    def _next(self) -> int:
        self._draws += 1
        return self._draws - 1

    def _entropy(self) -> int:
        return random_key(self.seed, self.name, "rng", f"entropy/{self._next()}")


def _shape(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)
