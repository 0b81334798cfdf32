"""Strengths of models from battles: Bradley-Terry, with ties the model of Davidson."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native.convergence import Convergence

MAX_STEPS = 30
TOLERANCE = 1e-10  # a fit has converged if no parameter moves by more
ROUNDING = 1e-12  # of the log-likelihood of a battle
CHUNK = defaultdict(lambda: 2**22, cpu=2**17)  # numbers of the (K, K) matrices of a chunk of fits


@takes_arrays
def bradley_terry(wins: Tensor, ties: Tensor | None = None, *, prior_sd: float | None = 3.0) -> tuple[Tensor, Tensor]:
    """Estimate the strengths of models from the battles of each pair, by the likelihood of Davidson's model.

    P(i beats j) : P(j beats i) : P(tie) = exp((s_i - s_j) / 2) : exp((s_j - s_i) / 2) : nu. Without ties nu is 0, and
    the model is that of Bradley and Terry: P(i beats j) = 1 / (1 + exp(s_j - s_i)). Strengths add up to 0; their prior
    is normal, so that a model that lost all of its battles has a finite strength too.

    Args:
        wins: How often the model of the row beat that of the column; weights may be fractions. The diagonal does not
            count. A fit with a negative or infinite number, or NaN, is NaN.
        ties: Number of ties of each pair, a symmetric matrix, else averaged with its transpose; None without ties.
        prior_sd: Standard deviation of the strengths in their prior; None without one.

    Shape:
        - wins, ties: ``(..., K, K)``
        - Output: ``(..., K)`` and ``(...)``, float64

    Returns:
        The strengths and nu, which is infinite where all battles are ties.

    Raises:
        ValueError: If some models never battled against the others, or, without a prior, never lost to them or never
            beat them, so that the likelihood has no maximum.

    Example:
        >>> strengths, nu = bradley_terry(torch.tensor([[0, 8], [4, 0]]), torch.tensor([[0, 3], [3, 0]]), prior_sd=None)
        >>> strengths.diff().exp(), nu  # half of the wins, 3 / sqrt(8 x 4)
        (tensor([0.5000], dtype=torch.float64), tensor(0.5303, dtype=torch.float64))

    References:
        Bradley & Terry 1952, doi:10.2307/2334029; Davidson 1970, doi:10.1080/01621459.1970.10481082; Ford 1957,
        doi:10.2307/2308513
    """
    check_prior(prior_sd)
    checks.shape("wins", wins, "...", "K", "K")
    count = wins.shape[-1]
    checks.shape("wins", wins, "...", count, count)
    if ties is not None:
        checks.shape("ties", ties, *wins.shape)
        checks.same_device(wins=wins, ties=ties)
    battles = Battles.of(wins.double(), torch.zeros_like(wins) if ties is None else ties.double())
    check_connected(battles, prior_sd, [f"model {i}" for i in range(count)], "wins")
    parameters = fit(battles, prior_sd)
    return parameters[..., :-1], parameters[..., -1].exp()


def check_prior(prior_sd: float | None) -> None:
    if prior_sd is not None:
        checks.check_number("prior_sd", prior_sd, "None or a number above 0", lambda x: 0 < x < torch.inf)


class Battles(NamedTuple):
    """Outcomes of the battles of each pair of K models; a fit with invalid counts is NaN."""

    wins: Tensor  # (..., K, K) float64, of the row over the column
    ties: Tensor  # (..., K, K) float64, symmetric

    @classmethod
    def of(cls, wins: Tensor, ties: Tensor) -> "Battles":
        diagonal = torch.eye(wins.shape[-1], dtype=torch.bool, device=wins.device)
        wins, ties = (outcomes.masked_fill(diagonal, 0) for outcomes in (wins, ties))
        valid = ((wins >= 0) & (ties >= 0) & wins.isfinite() & ties.isfinite()).flatten(-2).all(-1)[..., None, None]
        return cls(wins.where(valid, torch.nan), ((ties + ties.mT) / 2).where(valid, torch.nan))

    def __len__(self) -> int:
        return self.wins.shape[-1]


def fit(battles: Battles, prior_sd: float | None, start: Tensor | None = None) -> Tensor:
    # start: (K + 1,), parameters near the maximum  ->  (..., K + 1), strengths and log nu
    """Maximize the likelihood, with the prior, of each fit by itself; one that does not converge is NaN."""
    wins, ties = (outcomes.flatten(0, -3) if outcomes.ndim > 2 else outcomes[None] for outcomes in battles)
    size, count = max(CHUNK[wins.device.type] // max(wins[:1].numel(), 1), 1), wins.shape[-1]
    chunks = zip(wins.split(size), ties.split(size), strict=True)
    parameters = [_fit_chunk(Battles(*chunk), 0.0 if prior_sd is None else prior_sd**-2, start) for chunk in chunks]
    return torch.cat(parameters).view(*battles.wins.shape[:-2], count + 1)


def _fit_chunk(battles: Battles, precision: float, start: Tensor | None) -> Tensor:
    # battles: (B, K, K)  ->  (B, K + 1)
    """Take steps of Newton, each halved until it does not lower the likelihood."""
    num_wins, num_ties = (outcomes.sum((-2, -1)) for outcomes in battles)
    likelihood = _Likelihood.of(battles, precision, lacks_one=(num_wins <= 0) | (num_ties <= 0))
    parameters = num_wins.new_zeros(len(num_wins), len(battles) + 1)
    if start is None:
        parameters[:, -1] = (num_ties / num_wins).log()  # the maximum for equal strengths
    else:
        parameters = parameters + start
    parameters[:, -1] = parameters[:, -1].masked_fill(likelihood.lacks_one, -torch.inf)
    value, num = torch.full_like(num_wins, -torch.inf), num_wins + num_ties
    rounding = ROUNDING * num
    step, scale, unfinished = torch.zeros_like(parameters), torch.ones_like(value), torch.ones_like(value).bool()
    convergence = Convergence()
    for _ in range(MAX_STEPS):
        trial = parameters + scale[:, None] * step
        new_value, new_step = likelihood.value_and_step(trial)
        accepted = unfinished & (new_value >= value - rounding)
        parameters, step = (new.where(accepted[:, None], old) for new, old in ((trial, parameters), (new_step, step)))
        value, scale = new_value.where(accepted, value), (scale / 2).masked_fill(accepted, 1)
        unfinished = unfinished & ~(accepted & (torch.linalg.vector_norm(step, torch.inf, -1) <= TOLERANCE))
        if convergence.is_reached(unfinished.any()):
            break
    parameters = parameters.masked_fill(unfinished[:, None], torch.nan)
    only_ties = (num_wins == 0) & (num_ties > 0)
    parameters[:, -1] = parameters[:, -1].masked_fill(only_ties, torch.inf)
    return parameters.masked_fill((num == 0)[:, None], torch.nan)


class _Likelihood(NamedTuple):
    """Likelihood of B fits, with what is the same in all steps. Halves are exact, wherever they are taken."""

    wins: Tensor  # (B, K, K)
    half_ties: Tensor  # (B, K, K)
    num: Tensor  # (B, K, K) battles
    half_num: Tensor
    num_ties: Tensor  # (B,)
    scores: Tensor  # (B, K) half of the wins less the losses
    precision: float  # of the prior
    lacks_one: Tensor  # (B,) bool, whether there are no wins or no ties, so that log nu is no parameter

    @classmethod
    def of(cls, battles: Battles, precision: float, lacks_one: Tensor) -> "_Likelihood":
        wins, ties = battles
        num = wins + wins.mT + ties
        scores = (wins - wins.mT).sum(-1) / 2
        return cls(wins, ties / 2, num, num / 2, ties.sum((-2, -1)) / 2, scores, precision, lacks_one)

    def value_and_step(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        # parameters: (B, K + 1)  ->  (B,), (B, K + 1)
        """Return the logarithm of likelihood and prior, and the step of Newton from there."""
        strengths, log_nu = parameters[:, :-1], parameters[:, -1]
        root, nu = (strengths / 2).exp(), log_nu.exp()[:, None, None]
        odds = root[:, :, None] / root[:, None]
        total = odds + odds.mT + nu
        value = (self.scores * strengths).sum(-1) - (self.half_num * total.log()).sum((-2, -1))
        value = value + (self.num_ties * log_nu).masked_fill(self.lacks_one, 0)
        value = value - self.precision / 2 * strengths.square().sum(-1)

        p_win, p_tie = odds / total, nu / total
        difference = p_win.mT - p_win  # minus twice the expected score of a battle
        variance = torch.add(p_win * p_win.mT, (p_win + p_win.mT) * p_tie, alpha=0.25)
        won = self.wins * torch.add(p_win.mT, p_tie, alpha=0.5)  # less expected
        tied = self.half_num * p_tie
        weights = self.num * variance
        gradient = won.sum(-1) - won.sum(-2) + (self.half_ties * difference).sum(-1) - self.precision * strengths
        last = (self.num_ties - tied.sum((-2, -1))).masked_fill(self.lacks_one, 0)
        # The likelihood does not determine the sum of the strengths; a multiple of the matrix of ones keeps it.
        corner = weights.mean((-2, -1), keepdim=True) - weights
        corner.diagonal(dim1=-2, dim2=-1).add_(weights.sum(-1) + self.precision)
        side = (self.half_num * difference * p_tie).sum(-1)
        end = (tied * (1 - p_tie)).sum((-2, -1)).masked_fill(self.lacks_one, 1)
        bottom = torch.cat([side, end[:, None]], -1)
        matrix = torch.cat([torch.cat([corner, side[:, :, None]], -1), bottom[:, None]], 1)
        return value, torch.linalg.solve_ex(matrix, torch.cat([gradient, last[:, None]], -1))[0]


def check_connected(battles: Battles, prior_sd: float | None, names: Sequence[str], argument: str) -> None:
    """Raise a ValueError if the battles determine no strengths; needs one synchronization with the device.

    Without a prior, each model has to be reached from each other one by models that were beaten or tied with.
    """
    met = battles.wins + battles.ties > 0
    reached = _reached(met if prior_sd is None else met | met.mT)
    fails = ~reached.flatten(-2).all(-1) & battles.wins.isfinite().flatten(-2).all(-1)
    if not bool(fails.any()):
        return
    met, reached = met[fails][0].cpu(), reached[fails][0].cpu()
    connected = _reached(met | met.mT)[0]
    if not bool(connected.all()):
        parts = _listed(names, connected), _listed(names, ~connected)
        raise ValueError(
            f"{argument}: got no battle between {parts[0]} and {parts[1]}; wanted all models to be connected by battles"
        )
    best, worst = int(reached.sum(0).argmin()), int(reached.sum(1).argmin())
    first, last = (reached[i] & reached[:, i] for i in (best, worst))  # reached by no other model; reach no other
    members, happened = (first, "never lost") if int(first.sum()) <= int(last.sum()) else (last, "never won")
    others = " against the others" if int(members.sum()) > 1 else ""
    raise ValueError(
        f"{argument}: {_listed(names, members)} {happened}{others}, so that the likelihood has no maximum; write "
        "prior_sd=3.0"
    )


def _reached(met: Tensor) -> Tensor:
    # met: (..., K, K) bool  ->  (..., K, K) bool
    """Return whether a path leads from each model to each other one."""
    reached = met | torch.eye(met.shape[-1], dtype=torch.bool, device=met.device)
    for _ in range((met.shape[-1] - 1).bit_length()):
        reached = reached.float() @ reached.float() > 0
    return reached


def _listed(names: Sequence[str], is_member: Tensor) -> str:
    members = [name for name, member in zip(names, is_member.tolist(), strict=True) if member]
    return ", ".join(members[:5]) + (f" and {len(members) - 5} more" if len(members) > 5 else "")
