"""The error of a value of a wrong type."""


class WrongTypeError(TypeError, ValueError):
    """Error of a value of a wrong type; both a TypeError and a ValueError, as for other invalid values of a document."""
