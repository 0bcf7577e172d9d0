#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the compiler made of the GPU's kernels, from their machine code.

    scripts/kernel-table.py [--check] [FOLDER]     FOLDER: of the .o files (build/src/dev/cuda)

Prints the table of docs/look-up/gpu-kernels.md. Each pair of numbers: sm_80, sm_90. `loop`: of the loop
with the products of matrices (HMMA), the instructions on the shortest way through it: no dropout, no key
hidden. --check fails where a kernel of attention has no such loop or, by the compiler of that table, spills
registers. Needs cuobjdump: of the CUDA toolkit, or of the package nvidia-cuda-cuobjdump. Exit code 77: it is
not here, or nothing was compiled.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

# kernel in its mangled name -> how the table names it
KERNELS = {
    "mma_attend": "attention",
    "mma_back_queries": "attention, dq",
    "mma_back_keys": "attention, dk and dv",
    "columns_of": "im2col",
    "pixels_by": "col2im",
    "optimize": "optimizer",
    "sums_over_rows": "gradients of biases and norms",
    "norm_rows_back": "row norm, dx",
    "loss_of_rows": "cross-entropy",
}
VARIANTS = {"7of_bf16": "bf16", "7of_tf32": "tf32", "I4bf16": "bf16", "IfE": "f32", "IfLi": "f32"}
ARCHS = ("sm_80", "sm_90")
COMPILER = b"release 13.0"


def find_tool():
    nvcc = shutil.which("nvcc")
    places = [os.path.dirname(os.path.realpath(nvcc))] if nvcc else []
    for folder in sys.path:
        places += glob.glob(os.path.join(folder, "nvidia", "*", "bin"))
        places += glob.glob(os.path.join(folder, "triton", "backends", "nvidia", "bin"))
    return shutil.which("cuobjdump") or next(
        (p for p in (os.path.join(d, "cuobjdump") for d in places) if os.access(p, os.X_OK)), None)


def title(mangled):
    """The kernel and its variant; None: not one of the table."""
    name = next((n for n in KERNELS if re.search(r"\d%s(I|v|E|P|\d)" % n, mangled + "v")), None)
    if name is None:
        return None
    kind = next((v for k, v in VARIANTS.items() if k in mangled), "")
    width = re.search(r"(?:7of_bf16|7of_tf32)Li(\d+)E", mangled)
    many = re.search(r"(?:(?:several|pixels_by|norm_rows_back)I4bf16|norm_rows_backIf)Li(\d+)E", mangled)
    words = [KERNELS[name], kind, "head %s" % width.group(1) if width else ""]
    if many:
        words[2] = "%s values" % many.group(1)
    return " ".join(w for w in words if w)


def read_resources(tool, arch, path):
    text = subprocess.run([tool, "-arch", arch, "-res-usage", path], capture_output=True, text=True).stdout
    found = {}
    for name, line in re.findall(r"Function (\S+):\n\s*(.*)", text):
        values = dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line))
        found[name] = {k: int(v) for k, v in values.items()}
    return found


def read_code(tool, arch, path):
    """Of each function its instructions: (address, text)."""
    text = subprocess.run([tool, "-arch", arch, "-sass", path], capture_output=True, text=True).stdout
    code = {}
    for part in text.split("Function : ")[1:]:
        name = part.split("\n", 1)[0].strip()
        lines = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+([^;]*);", part, re.M)
        code[name] = [(int(at, 16), " ".join(what.split())) for at, what in lines]
    return code


def is_product(what):
    return re.match(r"(@!?\w+ )?HMMA", what) is not None


def find_jump(what):
    """Where it may go to: (target or None, whether the next instruction may follow)."""
    jump = re.search(r"\bBRA(?:\.\w+)* (?:\S+, )?0x([0-9a-f]+)", what)
    if jump:
        return int(jump.group(1), 16), what.startswith("@") or "," in what
    return None, not re.match(r"(EXIT|RET)", what)


def find_loop(code):
    """The loop with the most products of matrices: (instructions of the shortest way through it, products)."""
    places = {at: i for i, (at, _) in enumerate(code)}
    best = (0, 0)
    for last, (at, what) in enumerate(code):
        first = places.get(find_jump(what)[0], last)
        products = sum(map(is_product, (w for _, w in code[first:last])))
        if first >= last or products <= best[0]:
            continue
        far = {first: 1}
        for i in range(first, last):
            if i in far:
                target, follows = find_jump(code[i][1])
                to = places.get(target, -1)
                for j in ([i + 1] if follows else []) + ([to] if i < to <= last else []):
                    far[j] = min(far.get(j, far[i] + 1), far[i] + 1)
        best = (products, far.get(last, 0))
    return best[1], best[0]


def read_rows(tool, folder, which):
    rows = []
    for path in sorted(glob.glob(os.path.join(folder, "kernels_%s.o" % which))):
        for arch in ARCHS:
            resources = read_resources(tool, arch, path)
            code = read_code(tool, arch, path)
            for name, used in resources.items():
                if title(name) and name in code:
                    lines = [c for c in code[name] if not re.match(r"(NOP|BRA 0x%x)" % c[0], c[1])]
                    rows.append((title(name), arch, used, lines, find_loop(lines)))
    return sorted(rows, key=lambda r: (r[0], r[1]))


def spilled(row):
    return row[2]["STACK"] + row[2]["LOCAL"]


def of_table(folder):
    """Whether the table's compiler has made the objects."""
    with open(os.path.join(folder, "kernels_attention_mma.o"), "rb") as f:
        return COMPILER in f.read()


def is_rare(row):
    """Not of the table: variants that few shapes take."""
    return row[0].endswith(" 1 values") or row[0].startswith(("im2col", "col2im")) and "8 values" not in row[0]


def main():
    words = [w for w in sys.argv[1:] if w != "--check"]
    folder = words[0] if words else "build/src/dev/cuda"
    tool = find_tool()
    rows = read_rows(tool, folder, "*attention_mma" if "--check" in sys.argv else "*") if tool else []
    if not rows:
        print("skipped: " + ("no kernels in %s" % folder if tool else
                             "no cuobjdump (pip install nvidia-cuda-cuobjdump)"))
        return 77
    if "--check" in sys.argv:
        strict = of_table(folder)
        bad = ["%s, %s: spills %d bytes, or has no products in a loop" % (r[0], r[1], spilled(r))
               for r in rows if r[0].startswith("attention") and (strict and spilled(r) > 0 or r[4][1] == 0)]
        print("\n".join(bad) or "%d kernels, the most spills %d bytes" % (len(rows), max(map(spilled, rows))))
        return 1 if bad else 0
    print("| kernel | registers | stack | shared memory | instructions | loop | products | in a product |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in sorted({r[0] for r in rows if not is_rare(r)}):
        same = [r for r in rows if r[0] == name]
        columns = [[r[2]["REG"] for r in same], [spilled(r) for r in same],
                   [r[2]["SHARED"] for r in same], [len(r[3]) for r in same]]
        if same[0][4][1]:
            columns += [[r[4][0] for r in same], [r[4][1] for r in same],
                        ["%.1f" % (r[4][0] / r[4][1]) for r in same]]
        print("| %s | %s |%s" % (name, " | ".join(", ".join(map(str, c)) for c in columns),
                                 "" if same[0][4][1] else " | | |"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
