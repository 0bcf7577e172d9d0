#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cut the MNIST sample out of the complete MNIST: make-sample.py MNIST_DIR OUT_DIR

The rule: of each class the first 600 training and the first 100 test images in file order, kept in
file order. The gzip headers carry no time and no name, so the same zlib makes the same files.
"""
import gzip
import hashlib
import io
import os
import struct
import sys

CLASSES = 10
SPLITS = (("train", 600), ("t10k", 100))


def read_idx(folder, stem, dims):
    path = os.path.join(folder, stem)
    if os.path.exists(path + ".gz"):
        with gzip.open(path + ".gz", "rb") as f:
            data = f.read()
    else:
        with open(path, "rb") as f:
            data = f.read()
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


def write_idx(folder, stem, sizes, body):
    data = struct.pack(">%dI" % (1 + len(sizes)), 0x0800 + len(sizes), *sizes) + body
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as f:
        f.write(data)
    with open(os.path.join(folder, stem + ".gz"), "wb") as f:
        f.write(packed.getvalue())
    print("%s  %s  %d" % (hashlib.sha256(data).hexdigest(), stem, len(data)))
    print("%s  %s.gz  %d" % (hashlib.sha256(packed.getvalue()).hexdigest(), stem,
                             len(packed.getvalue())))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make-sample.py MNIST_DIR OUT_DIR")
    source, target = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    for prefix, per_class in SPLITS:
        (_, rows, columns), images = read_idx(source, prefix + "-images-idx3-ubyte", 3)
        _, labels = read_idx(source, prefix + "-labels-idx1-ubyte", 1)
        taken = [0] * CLASSES
        chosen = []
        for i, label in enumerate(labels):
            if taken[label] < per_class:
                taken[label] += 1
                chosen.append(i)
        if min(taken) < per_class:
            sys.exit("%s: a class has fewer than %d images" % (prefix, per_class))
        pixels = rows * columns
        write_idx(target, prefix + "-images-idx3-ubyte", (len(chosen), rows, columns),
                  b"".join(images[i * pixels:(i + 1) * pixels] for i in chosen))
        write_idx(target, prefix + "-labels-idx1-ubyte", (len(chosen),),
                  bytes(labels[i] for i in chosen))


main()
