"""The error of a value that is none of its type."""


class WrongTypeError(TypeError, ValueError):
    """A value that is none of its type: caught as either, like other invalid values of a document."""
