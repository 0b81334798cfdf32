"""What fastText writes, made by hand."""

import struct


def fasttext_file(
    words, matrix, buckets, least=2, most=3, version=12, kind=2, labels=(), pruned=-1, kept=(), quantised=False
):
    rows, dim = matrix.shape
    head = struct.pack("<2i", 793712314, version)
    head += struct.pack("<12id", dim, 5, 5, 1, 5, 1, 2, kind, buckets, least, most, 100, 1e-4)
    head += struct.pack("<3i2q", len(words) + len(labels), len(words), len(labels), 99, pruned)
    for i, word in enumerate((*words, *labels)):
        head += word.encode() + b"\0" + struct.pack("<qb", 7, i >= len(words))
    head += b"".join(struct.pack("<2i", *pair) for pair in kept)
    return head + struct.pack("<?2q", quantised, rows, dim) + matrix.astype("<f4").tobytes() + b"what follows"
