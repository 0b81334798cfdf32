"""The search of rows that are spread over ranks: blocks on their way, and products that serve two ranks."""
