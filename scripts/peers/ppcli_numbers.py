# SPDX-License-Identifier: Apache-2.0
"""What is random in a run of ppcli, computed once more from its definition in include/ppcli/base/base.h and
src/data: initial weights, the order of samples, synthetic data; and the learning rate of a step.
Works on numpy and on torch arrays of 64-bit integers alike: `arange(n)` makes 0..n-1 of the kind
wanted, `xp` is numpy or torch."""

import math

M32 = 0xFFFFFFFF
GAINS = {"relu": math.sqrt(2), "gelu": math.sqrt(2), "tanh": 5 / 3, "none": 1}


def philox(seed, stream_number, blocks):
    """The four words of each of the given block numbers: four arrays. Products wrap around at 64
    bits, with a sign or without: only their bits count."""
    c = [blocks & M32, blocks >> 32, blocks * 0 + (stream_number & M32),
         blocks * 0 + (stream_number >> 32)]
    k0, k1 = seed & M32, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [((p1 >> 32) & M32) ^ c[1] ^ k0, p1 & M32, ((p0 >> 32) & M32) ^ c[3] ^ k1, p0 & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def stream(name, n):
    h = 0xCBF29CE484222325
    for byte in name.encode() + n.to_bytes(8, "little"):
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def words(xp, arange, seed, name, number, n, first=0):
    """Words first .. first + n - 1 of a stream."""
    skip = first % 4
    blocks = arange((skip + n + 3) // 4) + first // 4
    return xp.stack(philox(seed, stream(name, number), blocks), 1).reshape(-1)[skip:skip + n]


def permutation(xp, arange, seed, n, epoch):
    """The order of n samples in an epoch, as a list."""
    order = list(range(n))
    w = words(xp, arange, seed, "shuffle", epoch, n).tolist()
    for i in range(n - 1, 0, -1):
        j = (w[i] * (i + 1)) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def windows(xp, arange, seed, n, first, count):
    """Where samples first .. first + count - 1 of a text begin that has n windows."""
    return (words(xp, arange, seed, "windows", 0, count, first) * n) >> 32


def weight(xp, arange, to_f32, seed, layer, n_in, n_out, activation):
    """W[n_out][n_in] of a layer; activation: of this layer, "none" for the last. The bias is 0."""
    n = n_in * n_out
    u = to_f32(words(xp, arange, seed, "init:layers.%d.weight" % layer, 0, n) >> 8)
    # all of it in single precision, as ppcli computes it
    hi = to_f32(arange(1)) + GAINS[activation] * math.sqrt(3 / n_in)
    return (-hi + (hi + hi) * (u * 2.0 ** -24)).reshape(n_out, n_in)


def synthetic(xp, arange, seed, n, features, classes):
    """The training samples of data.dataset = synthetic: bytes [n][features] as 64-bit integers, and
    labels [n]."""
    blocks = (features + 15) // 16

    def rows(name, number, count):
        w = xp.stack(philox(seed, stream(name, number), arange(count * blocks)), 1).reshape(-1, 1)
        each = xp.stack([(w[:, 0] >> (8 * k)) & 255 for k in range(4)], 1)
        return each.reshape(count, blocks * 16)[:, :features]

    classes_of = arange(n) % classes
    prototypes = xp.stack([rows("synthetic:class", c, 1)[0] for c in range(classes)], 0)
    return (rows("synthetic:train", 0, n) + prototypes[classes_of] + 1) // 2, classes_of


def synthetic_tokens(xp, arange, seed, n, positions, vocabulary):
    """The training samples of data.dataset = synthetic-tokens: inputs and targets, [n][positions]."""
    return tuple(((words(xp, arange, seed, "synthetic-tokens:train", kind, n * positions)
                   * vocabulary) >> 32).reshape(n, positions) for kind in (1, 0))


def rate(train, step, steps):
    """Of step 1..steps by the keys of [train]: linear warm-up, then a cosine."""
    lr, warm = float(train["lr"]), int(train["warmup_steps"])
    if step <= warm:
        return lr * step / warm
    return lr * 0.5 * (1 + math.cos(math.pi * (step - 1 - warm) / (steps - warm)))
