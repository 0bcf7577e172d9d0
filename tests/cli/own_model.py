#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch is the judge of what ppcli does with a module of one's own:

    own_model.py PPCLI SOURCES

packaging/ppcli.py, which the wheel carries, writes the program; `ppcli init` the config; after a training in two
stages `ppcli export` gives the program back, which torch.export.load() runs, with the weights of the checkpoint.
The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has PyTorch 2.10 or newer."""

import glob
import os
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
NEEDS = "import torch, safetensors.torch; assert tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 10)"
failures = []


def find_python():
    """Runs this test under an interpreter that has what it needs."""
    for python in (sys.executable, os.environ.get("PPCLI_TEST_PYTHON", "")):
        if python and subprocess.run([python, "-c", NEEDS], check=False, capture_output=True).returncode == 0:
            if python != sys.executable:
                os.execv(python, [python, *sys.argv])
            return
    print("no interpreter with PyTorch 2.10 or newer (PPCLI_TEST_PYTHON)")
    sys.exit(77)


def check(what, right):
    print("%s: %s" % ("ok" if right else "wrong", what))
    if not right:
        failures.append(what)


def run(*words, code=0):
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    check("%s: exit %d" % (" ".join(words[1:3]), code), done.returncode == code)
    return done.stdout + done.stderr


def make_wheel(sources):
    """The wheel has the module; a program that says its words stands for ppcli."""
    os.makedirs("installed/bin")
    os.makedirs("installed/share/ppcli")
    with open("installed/bin/ppcli", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n")
    wheel = run(sys.executable, sources + "/scripts/make-wheel.py", "installed", "1", "any", ".").strip()
    check("the wheel has ppcli.py", "ppcli.py" in zipfile.ZipFile(wheel).namelist())


def main():
    program, sources = (os.path.abspath(word) for word in sys.argv[1:3])
    find_python()
    import torch
    from safetensors.torch import load_file
    sys.path[:0] = [sources + "/packaging", sources + "/tests/golden/pt2"]
    import ppcli
    import text
    os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
    os.chdir(tempfile.mkdtemp())
    make_wheel(sources)
    torch.manual_seed(3)
    model = text.Text().eval()
    model.blocks[0].train()
    check("ppcli.save() says that ppcli can train it", ppcli.save(model, torch.zeros(2, 8, dtype=torch.int64), "m.pt2"))
    check("the module keeps its modes", model.blocks[0].training and not model.training and not model.head.training)
    try:
        ppcli.save(model, torch.zeros(1, 8, dtype=torch.int64), "one.pt2")
        check("a batch of one is refused", False)
    except ValueError as error:
        check("a batch of one is refused", "2 samples" in str(error))

    class Lost(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.qr(x)[1]

    check("ppcli.save() says that ppcli cannot train it", not ppcli.save(Lost(), torch.zeros(2, 4, 4), "lost.pt2"))
    said = run(program, "explain", "lost.pt2", code=78)
    check("the operator and its line are named", "linalg_qr" in said and "own_model.py:" in said and "torch.linalg.qr(x)" in said)

    run(program, "init", "m.pt2", "-o", "m.ini")
    run(program, "train", "m.ini", "-q", "--dir", "run", "--max-steps", "20", "--stages", "2", "--batch-size", "16",
        "--set", "train.eval_interval=20")
    run(program, "export", "run", "out.pt2")
    saved = {}
    for part in glob.glob("run/checkpoints/step-00000020/stage-*"):
        saved.update(load_file(part))
    saved = {name: tensor for name, tensor in saved.items() if not name.startswith("optimizer.")}
    back = torch.export.load("out.pt2")
    check("the program has the tensors of the checkpoint", set(back.state_dict) == set(saved) and
          all(torch.equal(back.state_dict[name], saved[name]) for name in saved))
    check("they were trained", not torch.equal(saved["blocks.0.qkv.weight"], model.blocks[0].qkv.weight))
    model.load_state_dict(saved, strict=True)
    x = torch.randint(0, 32, (3, 8))
    far = (model(x) - back.module()(x)).abs().max().item()
    tokens = [3, 1, 4]
    while len(tokens) < 8:
        filled = torch.tensor([tokens + [0] * (8 - len(tokens))])
        tokens.append(model(filled)[0, len(tokens) - 1].argmax().item())
    said = run(program, "generate", "run", "-q", "--prompt", "3 1 4", "--tokens", "5", "--temperature", "0")
    check("generate makes the tokens of the module", said.split() == [str(token) for token in tokens])
    check("module and program compute the same (%.1e apart)" % far, far < 1e-5)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
