"""Scores of structured outputs, field by field."""
