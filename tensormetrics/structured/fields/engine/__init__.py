"""Encoding of documents in columns, matching of items, and counts by field."""
