#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cut a sample out of a data set: make-sample.py DIR OUT_DIR

DIR has MNIST's four files, or CIFAR-10's binary files. The rule: of each class the first 600 training
and the first 100 test images in file order (CIFAR-10: 50 and 10), kept in file order. The gzip
headers carry no time and no name, so the same zlib makes the same files.
"""
import gzip
import hashlib
import io
import os
import struct
import sys

CLASSES = 10
SPLITS = (("train", 600), ("t10k", 100))
RECORDS = (("data_batch_1.bin", 50), ("test_batch.bin", 10))
RECORD = 3073


def read(path):
    if os.path.exists(path + ".gz"):
        with gzip.open(path + ".gz", "rb") as f:
            return f.read()
    with open(path, "rb") as f:
        return f.read()


def read_idx(folder, stem, dims):
    path = os.path.join(folder, stem)
    data = read(path)
    head = 4 + 4 * dims
    magic, *sizes = struct.unpack(">%dI" % (1 + dims), data[:head])
    if magic != 0x0800 + dims:
        sys.exit("%s: magic 0x%08x, expected 0x%08x" % (path, magic, 0x0800 + dims))
    count = 1
    for size in sizes:
        count *= size
    if len(data) != head + count:
        sys.exit("%s: %d bytes, expected %d" % (path, len(data), head + count))
    return sizes, data[head:]


def write(folder, stem, data):
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as f:
        f.write(data)
    with open(os.path.join(folder, stem + ".gz"), "wb") as f:
        f.write(packed.getvalue())
    print("%s  %s  %d" % (hashlib.sha256(data).hexdigest(), stem, len(data)))
    print("%s  %s.gz  %d" % (hashlib.sha256(packed.getvalue()).hexdigest(), stem,
                             len(packed.getvalue())))


def write_idx(folder, stem, sizes, body):
    write(folder, stem,
          struct.pack(">%dI" % (1 + len(sizes)), 0x0800 + len(sizes), *sizes) + body)


def choose(labels, per_class, what):
    taken = [0] * CLASSES
    chosen = []
    for i, label in enumerate(labels):
        if taken[label] < per_class:
            taken[label] += 1
            chosen.append(i)
    if min(taken) < per_class:
        sys.exit("%s: a class has fewer than %d images" % (what, per_class))
    return chosen


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make-sample.py DIR OUT_DIR")
    source, target = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    if any(name.startswith("test_batch.bin") for name in os.listdir(source)):
        for stem, per_class in RECORDS:
            data = read(os.path.join(source, stem))
            chosen = choose(data[::RECORD], per_class, stem)
            write(target, stem, b"".join(data[i * RECORD:(i + 1) * RECORD] for i in chosen))
        return
    for prefix, per_class in SPLITS:
        (_, rows, columns), images = read_idx(source, prefix + "-images-idx3-ubyte", 3)
        _, labels = read_idx(source, prefix + "-labels-idx1-ubyte", 1)
        chosen = choose(labels, per_class, prefix)
        pixels = rows * columns
        write_idx(target, prefix + "-images-idx3-ubyte", (len(chosen), rows, columns),
                  b"".join(images[i * pixels:(i + 1) * pixels] for i in chosen))
        write_idx(target, prefix + "-labels-idx1-ubyte", (len(chosen),),
                  bytes(labels[i] for i in chosen))


main()
