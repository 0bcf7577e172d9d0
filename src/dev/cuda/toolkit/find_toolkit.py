#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds a CUDA toolkit and tries it, for meson.

    find_toolkit.py CPU ARCHS CC...     ARCHS: 'auto', or 80,90; CC...: the C compiler

Prints lines of NAME, a tab and VALUE: nvcc, version, archs, include (folders, ':' between them), cudart and blas (files),
takes_names. Or missing and a reason, where there is no toolkit or the compilers refuse probe.cu or probe.c:
the first line of what they say. Layouts it knows: NVIDIA's installer (/usr/local/cuda), Debian, the HPC SDK
(math_libs beside cuda), conda (targets/), and the wheels of pip (one folder, or one for each part).
"""
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
AUTO = ("80", "90", "100", "120")


class Missing(Exception):
    pass


def find_nvcc():
    folders = [os.path.join(os.environ[v], "bin") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    folders += os.environ.get("PATH", "").split(":")
    folders += ["/usr/local/cuda/bin", "/opt/cuda/bin", os.environ.get("NVHPC_ROOT", "") + "/compilers/bin"]
    folders += sorted(glob.glob("/opt/nvidia/hpc_sdk/Linux_*/[0-9]*/compilers/bin"), reverse=True)
    for folder in sys.path:
        folders += sorted(glob.glob(os.path.join(folder, "nvidia", "c*", "bin")), reverse=True)
    found = next((p for p in (os.path.join(f, "nvcc") for f in folders) if os.access(p, os.X_OK)), None)
    if not found:
        raise Missing("no nvcc in CUDA_HOME, PATH, /usr/local/cuda or the HPC SDK")
    return found


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, errors="replace", env=dict(os.environ, CCACHE_DISABLE="1"))
    return done.returncode, done.stdout + done.stderr


def roots_of(nvcc):
    """Folders that may have include/ and lib/, the toolkit's own first."""
    code, text = run(nvcc, "-dryrun", "-x", "cu", "-c", "/dev/null")
    named = re.search(r"^#\$ TOP=(.*)$", text, flags=re.M)
    tops = [os.path.realpath(named.group(1).strip())] if named else []
    for path in (os.path.realpath(nvcc), nvcc):
        tops.append(os.path.dirname(os.path.dirname(path)))
    roots = []
    for top in tops:
        roots.append(top)
        for cuda in [top] + sorted(glob.glob(os.path.join(top, "..", "cuda", "[0-9]*")), reverse=True): # the HPC SDK
            others = os.path.join(cuda, "..", "..")
            version = os.path.basename(cuda)
            roots += [cuda, os.path.join(others, "math_libs", version), os.path.join(others, "comm_libs", version, "nccl")]
        if os.path.basename(os.path.dirname(top)) == "nvidia": # wheels
            roots += sorted(glob.glob(os.path.join(top, "..", "*")))
    return [os.path.normpath(r) for r in roots + ["/usr"]]


def targets(root, cpu):
    names = [cpu + "-linux"] + (["sbsa-linux"] if cpu == "aarch64" else [])
    return [root] + [os.path.join(root, "targets", name) for name in names]


def find_file(roots, cpu, folders, names):
    for root in roots:
        for target in targets(root, cpu):
            for folder in folders:
                for name in names:
                    found = sorted(glob.glob(os.path.join(target, folder, name)))
                    if found:
                        return os.path.join(os.path.realpath(os.path.dirname(found[-1])), os.path.basename(found[-1]))
    return None


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if re.search(r"error|fatal|unsupported", line, flags=re.I)] or lines or ["no reason given"]
    return lines[0].replace(HERE + "/", "")


def look(cpu, archs, compiler):
    nvcc = find_nvcc()
    code, text = run(nvcc, "--version")
    release = re.search(r"release ([0-9.]+)", text)
    if code != 0 or not release:
        raise Missing("%s does not run: %s" % (nvcc, first_line(text)))
    where = "%s (%s)" % (nvcc, release.group(1))
    roots = roots_of(nvcc)
    includes = []
    for header in ("cuda_runtime.h", "cublasLt.h", "nvtx3/nvToolsExt.h", "nccl.h"):
        found = find_file(roots, cpu, ["include"], [header])
        if not found and header != "nccl.h":
            raise Missing("%s, but no %s in its folders" % (where, header))
        folder = (found or "")[:-len(header) - 1]
        if found and folder not in includes + ["/usr/include"]:
            includes.append(folder)
    folders = ["lib64", "lib", "lib/%s-linux-gnu" % cpu]
    files = {}
    for name, names in (("cudart", ["libcudart_static.a", "libcudart.so", "libcudart.so.*"]),
                        ("blas", ["libcublasLt.so", "libcublasLt.so.1[0-9]"])):
        files[name] = find_file(roots, cpu, folders, names)
        if not files[name]:
            raise Missing("%s, but no %s in its folders" % (where, names[0]))
    code, text = run(nvcc, "--list-gpu-code")
    has = re.findall(r"sm_(\w+)", text)
    archs = [a for a in AUTO if a in has] if archs == "auto" else archs.split(",")
    system = [word for folder in includes for word in ("-isystem", folder)]
    codes = [word for a in archs for word in ("-gencode", "arch=compute_%s,code=sm_%s" % (a, a))]
    code, text = run(nvcc, "-c", os.path.join(HERE, "probe.cu"), "-o", os.devnull, "-std=c++17", "--extended-lambda",
                     *codes, *system)
    if code != 0:
        raise Missing("%s: %s" % (where, first_line(text)))
    code, text = run(*compiler, "-fsyntax-only", "-I" + os.path.dirname(HERE), *system, os.path.join(HERE, "probe.c"))
    if code != 0:
        raise Missing("%s, whose headers lack what ppcli calls (CUDA 12.5 has it): %s" % (where, first_line(text)))
    code, text = run(nvcc, "--objdir-as-tempdir", "-Xcudafe", "--orig_src_path_name=a,--orig_src_file_name=a",
                     "-x", "cu", "-c", "/dev/null", "-o", os.devnull)
    print("nvcc\t%s\nversion\t%s\narchs\t%s\ninclude\t%s\ncudart\t%s\nblas\t%s\ntakes_names\t%d" % (
        nvcc, release.group(1), ",".join(archs), ":".join(includes), files["cudart"], files["blas"], code == 0))


def main():
    try:
        look(sys.argv[1], sys.argv[2], sys.argv[3:])
    except Missing as reason:
        print("missing\t%s" % reason)


if __name__ == "__main__":
    main()
