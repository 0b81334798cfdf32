"""Errors and warnings of the domain."""

from ...core.resampling.errors import UncertaintyWarning


class ConfigError(ValueError):
    """A study, or an experiment in it, is described wrongly."""


class ConfMatIOError(ValueError):
    """Invalid confusion matrix."""


class UnknownNameError(KeyError, ValueError):
    """Unknown name of a metric, an experiment or a group."""

    __str__ = ValueError.__str__  # KeyError would show the message in quotes


class PosteriorWarning(UncertaintyWarning):
    """Warning of a result that is right but may be unexpected, or needlessly expensive."""


class ConfigWarning(UserWarning):
    """A default was chosen, or a value converted."""


class ConfMatIOWarning(UserWarning):
    """A confusion matrix that is valid but unusual."""
