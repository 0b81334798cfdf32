"""Scores of structured documents, field by field."""
