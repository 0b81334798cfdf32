"""Search among rows that are sharded over ranks: exchange of blocks, and products that are shared by two ranks."""
