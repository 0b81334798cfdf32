"""Search by int16 products on CPUs with AVX-512 VNNI or AVX-VNNI: they exclude most references."""
