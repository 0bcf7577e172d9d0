#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Toolkits in every layout that find_toolkit.py knows, made of links to one that is here and a stand-in for
nvcc; and ones that must be left out, with the compiler's first line.

    toolkit.py FIND_TOOLKIT INCLUDE LIBDIR CC...
"""
import os
import subprocess
import sys
import tempfile

FIND, INCLUDE, LIBDIR = map(os.path.abspath, sys.argv[1:4])
failed = False


def link(folder, names, start):
    os.makedirs(folder, exist_ok=True)
    for name in names:
        os.symlink(os.path.join(start, name), os.path.join(folder, name))


def make_nvcc(path, top, codes="sm_80 sm_90", refuses=""):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write('#!/bin/sh\ncase " $* " in\n*" --version "*) echo "release 12.9, V12.9.1";;\n'
                '*" -dryrun "*) echo "#$ TOP=%s" >&2;;\n*" --list-gpu-code "*) echo %s;;\n'
                '*probe.cu*) [ -z "%s" ] || { echo "a note" >&2; echo "%s" >&2; exit 1; };;\nesac\n' %
                (top, codes, refuses, refuses))
    os.chmod(path, 0o755)


def look(nvcc, archs="auto", home=""):
    environ = dict(os.environ, PATH=os.path.dirname(nvcc) + ":/usr/bin:/bin", CUDA_HOME=home, CUDA_PATH="")
    text = subprocess.run([sys.executable, FIND, os.uname().machine, archs] + sys.argv[4:], env=environ,
                          stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    return dict(line.split("\t") for line in text.strip().split("\n"))


def check(what, got, want):
    global failed
    failed |= want not in str(got)
    print("%s: %s" % ("FAILED" if want not in str(got) else "ok", what))
    if want not in str(got):
        print("  %r\n  has no %r" % (got, want))


def main():
    headers, files = os.listdir(INCLUDE), os.listdir(LIBDIR)
    blas = next(f for f in sorted(files) if f.startswith("libcublasLt.so."))
    of_blas = [h for h in headers if h.startswith("cublas")]
    with tempfile.TemporaryDirectory() as top:
        os.chdir(top)
        nvcc = top + "/wheels/nvidia/cu13/bin/nvcc"
        make_nvcc(nvcc, os.path.dirname(nvcc) + "/..", "sm_80 sm_90 sm_100 sm_103 sm_120")
        link("wheels/nvidia/cu13/include", headers, INCLUDE)
        link("wheels/nvidia/cu13/lib", ["libcudart_static.a", blas], LIBDIR)
        got = look(nvcc)
        check("pip's wheels of CUDA 13 have no libcublasLt.so", got.get("blas"), "/wheels/nvidia/cu13/lib/" + blas)
        check("auto takes what nvcc knows", got.get("archs"), "80,90,100,120")
        check("CUDA_HOME is asked first", look("/usr/bin/true", home=top + "/wheels/nvidia/cu13").get("nvcc"), nvcc)

        nvcc = top + "/hpc/compilers/bin/nvcc"
        make_nvcc(nvcc, top + "/hpc/cuda/12.9")
        link("hpc/cuda/12.9/include", [h for h in headers if h not in of_blas], INCLUDE)
        link("hpc/cuda/12.9/lib64", ["libcudart_static.a"], LIBDIR)
        link("hpc/math_libs/12.9/include", of_blas, INCLUDE)
        link("hpc/math_libs/12.9/lib64", [blas], LIBDIR)
        got = look(nvcc)
        check("the HPC SDK has cuBLASLt in math_libs", got.get("blas"), "/hpc/math_libs/12.9/lib64/" + blas)
        check("and older nvcc know fewer devices", got.get("archs"), "80,90")

        nvcc, target = top + "/conda/bin/nvcc", "conda/targets/%s-linux" % os.uname().machine
        make_nvcc(nvcc, top + "/conda")
        link(target + "/include", headers, INCLUDE)
        link(target + "/lib", ["libcudart_static.a"], LIBDIR)
        link("conda/lib", [blas], LIBDIR)
        got = look(nvcc, "90")
        check("conda has headers under targets", got.get("cudart"), target + "/lib/libcudart_static.a")
        check("and gpu_arch is taken as it is", got.get("archs"), "90")

        make_nvcc(nvcc, top + "/conda", refuses="nvcc fatal : Unsupported gpu architecture")
        check("what nvcc says is the reason", look(nvcc).get("missing"), "(12.9): nvcc fatal : Unsupported gpu architecture")
        make_nvcc(nvcc, top + "/conda")
        os.remove(target + "/include/cuda.h")
        with open(target + "/include/cuda.h", "w") as f:
            f.write('#include "%s/cuda.h"\n#define cuGreenCtxStreamCreate cuGreenCtxOfOldHeaders\n' % INCLUDE)
        check("what headers lack is the reason", look(nvcc).get("missing"), "whose headers lack what ppcli calls")
        os.remove("conda/lib/" + blas)
        check("a missing library is named", look(nvcc).get("missing"), "no libcublasLt.so in its folders")
    return 1 if failed else 0


sys.exit(main())
