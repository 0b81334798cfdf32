"""Annotations of fields: comparators of scalars, matching of lists, and weights of fields."""
