"""The random numbers of base/rng.h, from the papers that it cites, for tests that must know
them."""

MASK = 2**64 - 1


def splitmix(x):
    """Returns the output of splitmix64 for the state x."""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def hashed(seed, a, b, c):
    x = seed
    for word in (a, b, c):
        x = splitmix(x) ^ word
    return splitmix(x)


class Draws:
    """xoshiro256** with a state of four numbers from splitmix64."""

    def __init__(self, seed):
        self.s = [splitmix((seed + i * 0x9E3779B97F4A7C15) & MASK) for i in range(4)]

    def next(self):
        def rotl(x, k):
            return (x << k | x >> (64 - k)) & MASK
        s = self.s
        out, t = rotl(s[1] * 5 & MASK, 7) * 9 & MASK, s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        return out

    def below(self, n):
        limit = MASK - MASK % n
        while True:
            v = self.next()
            if v < limit:
                return v % n

    def shuffled(self, items):
        """Fisher-Yates shuffle from the front."""
        items = list(items)
        for i in range(len(items)):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items
