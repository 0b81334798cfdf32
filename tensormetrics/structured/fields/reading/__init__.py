"""From texts of models and objects of Python to values."""
