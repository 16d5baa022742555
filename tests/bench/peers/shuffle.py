"""The documented shuffle of mh-train, for peers that train on the same batches."""
import itertools

MASK = 0xFFFFFFFF


def philox(counter, key):
    """Returns the four 32-bit output words of Philox-4x32-10 (Salmon et al. 2011). counter: 4 words; key: 2 words."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def stream_key(seed, name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & (2**64 - 1)
    return philox([h & MASK, h >> 32, seed & MASK, seed >> 32], [0x6D756C74, 0x69686561])[:2]


def shuffled_order(count, seed, stream, epoch):
    """Returns a permutation of 0 … count - 1 for an epoch: Fisher-Yates with a named random stream and Lemire's bounded integers."""
    key = stream_key(seed, stream)
    words = itertools.chain.from_iterable(philox([b & MASK, b >> 32, 0, epoch], key) for b in itertools.count())

    def uniform_below(bound):
        threshold = (2**64 - bound) % bound
        while True:
            low = next(words)
            product = (low | next(words) << 32) * bound
            if product & (2**64 - 1) >= threshold:
                return product >> 64

    order = list(range(count))
    for i in range(count, 1, -1):
        j = uniform_below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order
