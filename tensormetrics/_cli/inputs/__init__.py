"""Readers of files: `text` reads lines; `arrays`, `labels` and `gains` convert them to tensors."""
