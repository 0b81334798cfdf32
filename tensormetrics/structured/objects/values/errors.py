"""The error of a value of a wrong type."""


class WrongTypeError(TypeError, ValueError):
    """Error of a value of a wrong type; also a ValueError, like the errors of other invalid values of a document."""
