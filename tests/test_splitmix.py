import torch

from tensormetrics.core.numbers.splitmix import random_bits_at


def splitmix(seed, count):
    for i in range(count):
        x = (seed + i * 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        yield x ^ (x >> 31)


def test_the_stream_of_bits(device):
    # The first words of the published generator seeded with 1234567, whose state moves before every word.
    gamma = torch.tensor(0x9E3779B97F4A7C15 - 2**64, device=device)
    first = random_bits_at(gamma + 1234567, torch.arange(3, device=device))
    assert first.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423 - 2**64]
    words = random_bits_at(torch.tensor(-987654321987654321, device=device), torch.arange(300, device=device))
    assert [word % 2**64 for word in words.tolist()] == list(splitmix(-987654321987654321, 300))
