"""The warning that statistics of the package raise."""


class UncertaintyWarning(UserWarning):
    """A result is valid, but rests on less data, or costs more, than one might expect."""
