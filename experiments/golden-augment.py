#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchvision makes of pictures: golden-augment.py [--check FILE] > tests/golden/augment.txt

A line a case: its words, and the SHA-256 of the bytes of all its pictures. The first part is every op
of AutoAugment at all its levels and signs, then Resize, then whole chains whose random numbers are those of ppcli: words of the
Philox stream ("augment", epoch). --check compares with a file instead; 77: neither this interpreter nor
PPCLI_TEST_PYTHON has torchvision.
"""
import gzip
import hashlib
import os
import sys

try:
    import torch
    from PIL import Image
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as F
    from torchvision.transforms.autoaugment import AutoAugment, AutoAugmentPolicy, _apply_op
except ImportError as e:
    other = os.environ.pop("PPCLI_TEST_PYTHON", None)
    if other:
        os.execv(other, [other, *sys.argv])
    print("skipped: %s (set PPCLI_TEST_PYTHON to an interpreter with torchvision)" % e)
    sys.exit(77)

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "cifar10-sample",
                      "test_batch.bin.gz")
SEED, EPOCH, PAD = 11, 3, 4
OPS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
       "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")
SIZES = (1, 7, 16, 24, 32, 33, 48, 224)
CHAINS = (("crop", 0), ("flip", 0), ("crop flip", 0), ("crop autoaugment", 0), ("autoaugment", 0),
          ("flip autoaugment crop", 40), ("crop flip", 224))
ODD_CHAINS = (("odd", "crop flip", 0), ("odd", "flip autoaugment crop", 33), ("grey", "flip crop", 5),
              ("tiny", "crop flip autoaugment", 0), ("tiny", "autoaugment crop", 7))


def sample():
    with gzip.open(SAMPLE, "rb") as f:
        data = f.read()
    pictures = []
    for at in range(0, len(data), 3073):
        planes = torch.frombuffer(bytearray(data[at + 1:at + 3073]), dtype=torch.uint8)
        pictures.append(Image.fromarray(planes.view(3, 32, 32).permute(1, 2, 0).numpy()))
    return pictures


def noise(high, wide, channels):
    """Pictures of bytes that hardly anything is alike in, and one of a single value."""
    out, x = bytearray(), 1
    for _ in range(high * wide * channels):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append(x >> 24)
    mode = "RGB" if channels == 3 else "L"
    return [Image.frombytes(mode, (wide, high), bytes(out)),
            Image.frombytes(mode, (wide, high), bytes([77] * len(out)))]


def philox(seed, stream, index):
    """Word number `index` of a stream: include/ppcli/base/base.h."""
    mask = 2**32 - 1
    key = [seed & mask, seed >> 32]
    block = index // 4
    c = [block & mask, block >> 32, stream & mask, stream >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[index % 4]


def stream_of(name, n):
    h = 0xCBF29CE484222325
    for byte in name.encode() + n.to_bytes(8, "little"):
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def chain(picture, number, steps, resize):
    stream = stream_of("augment", EPOCH)
    word = [philox(SEED, stream, 8 * number + i) for i in range(8)]
    policy = AutoAugment(AutoAugmentPolicy.CIFAR10)
    for step in steps.split():
        wide, high = picture.size
        if step == "crop":
            padded = F.pad(picture, PAD)
            top, left = (word[i] * (2 * PAD + 1) >> 32 for i in range(2))
            picture = F.crop(padded, top, left, high, wide)
        elif step == "flip":
            picture = F.hflip(picture) if word[2] >> 31 else picture
        else: # as AutoAugment.forward()
            probs = torch.tensor([(word[4 + i] >> 8) * 2.0**-24 for i in range(2)])
            signs = torch.tensor([word[6 + i] >> 31 for i in range(2)])
            pair = policy.policies[word[3] * len(policy.policies) >> 32]
            space = policy._augmentation_space(10, (high, wide))
            for i, (op, p, level) in enumerate(pair):
                if probs[i] <= p:
                    magnitudes, signed = space[op]
                    magnitude = float(magnitudes[level].item()) if level is not None else 0.0
                    if signed and signs[i] == 0:
                        magnitude *= -1.0
                    picture = _apply_op(picture, op, magnitude, InterpolationMode.NEAREST, None)
    return F.resize(picture, [resize, resize]) if resize else picture


def digest(pictures):
    return hashlib.sha256(b"".join(p.tobytes() for p in pictures)).hexdigest()


def cases():
    real, odd, grey, tiny = sample(), noise(20, 45, 3), noise(28, 28, 1), noise(5, 3, 3)
    policy = AutoAugment(AutoAugmentPolicy.CIFAR10)
    for name, set_ in (("sample", real[:20]), ("odd", odd)):
        wide, high = set_[0].size
        space = policy._augmentation_space(10, (high, wide))
        for op in OPS:
            magnitudes, signed = space[op]
            levels = [float(m) for m in magnitudes] if magnitudes.ndim else [0.0]
            yield ("op %s %s %d %s" % (name, op, len(levels), "+-" if signed else "+"),
                   [_apply_op(p, op, sign * m, InterpolationMode.NEAREST, None)
                    for m in levels for sign in ((1, -1) if signed else (1,)) for p in set_])
    for name, set_ in (("sample", real[:20]), ("odd", odd), ("grey", grey), ("tiny", tiny)):
        for n in SIZES:
            yield "resize %s %d" % (name, n), [F.resize(p, [n, n]) for p in set_]
    for steps, n in CHAINS:
        yield ("chain %d %s" % (n, steps), [chain(p, i, steps, n) for i, p in enumerate(real)])
    for name, steps, n in ODD_CHAINS:
        set_ = {"odd": odd, "grey": grey, "tiny": tiny}[name]
        yield ("chain %s %d %s" % (name, n, steps),
               [chain(set_[i % 2], i, steps, n) for i in range(100)])


def main():
    lines = ["%s = %s" % (words, digest(pictures)) for words, pictures in cases()]
    if sys.argv[1:2] != ["--check"]:
        print("# experiments/golden-augment.py: words = sha256")
        print("\n".join(lines))
        return 0
    with open(sys.argv[2]) as f:
        golden = [line.rstrip("\n") for line in f if not line.startswith("#")]
    bad = [line for line in lines if line not in golden]
    print("%d cases, %d differ" % (len(lines), len(bad)), *bad, sep="\n")
    return 1 if bad or len(lines) != len(golden) else 0


sys.exit(main())
