"""Errors and warnings of the domain."""

from ...uncertainty.engine.errors import UncertaintyWarning


class ConfigError(ValueError):
    """A study, or an experiment in it, is described wrongly."""


class ConfMatIOError(ValueError):
    """Invalid confusion matrix."""


class UnknownNameError(KeyError, ValueError):
    """There is no metric, experiment or group of this name."""

    __str__ = ValueError.__str__  # KeyError would show the message in quotes


class PosteriorWarning(UncertaintyWarning):
    """A result is right but not what one may have expected, or dearer than it need be."""


class ConfigWarning(UserWarning):
    """A default was chosen, or a value converted."""


class ConfMatIOWarning(UserWarning):
    """A confusion matrix that is valid but unusual."""
