"""Files in the binary format of fastText, written by hand."""

import struct


def fasttext_file(
    words, matrix, buckets, min_n=2, max_n=3, version=12, kind=2, labels=(), pruned=-1, bucket_rows=(), quantized=False
):
    rows, dim = matrix.shape
    head = struct.pack("<2i", 793712314, version)
    head += struct.pack("<12id", dim, 5, 5, 1, 5, 1, 2, kind, buckets, min_n, max_n, 100, 1e-4)
    head += struct.pack("<3i2q", len(words) + len(labels), len(words), len(labels), 99, pruned)
    for i, word in enumerate((*words, *labels)):
        head += word.encode() + b"\0" + struct.pack("<qb", 7, i >= len(words))
    head += b"".join(struct.pack("<2i", *pair) for pair in bucket_rows)
    return head + struct.pack("<?2q", quantized, rows, dim) + matrix.astype("<f4").tobytes() + b"what follows"
