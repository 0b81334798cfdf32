"""The tree of types: read off classes, and what a value of each type is.

Stands on `comparators`.
"""
