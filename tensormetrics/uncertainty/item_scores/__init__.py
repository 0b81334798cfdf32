"""Scores of items that exist already, in files and in other containers.

Stands on `core`.
"""
