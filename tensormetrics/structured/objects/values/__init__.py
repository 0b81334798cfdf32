"""Values of objects: of which types they are, and columns of them."""
