#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch is the judge of what ppcli does with a module of one's own:

    own_model.py PPCLI SOURCES

packaging/ppcli.py, which the wheel carries, writes the program; `ppcli init` the config; after a training in two
stages `ppcli export` gives the program back, which torch.export.load() runs, with the weights of the checkpoint.
The decoder of PyTorch's pipelining tutorial has the digest of model.type = decoder. The code and the commands of
docs/do/own-models.md run, with fewer steps.
The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has PyTorch 2.10 or newer."""

import glob
import os
import re
import shlex
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


def train_tutorial(program, sources):
    """The tutorial's module, small, cut at layers.4: as a program, and as model.type = decoder with its weights."""
    import torch
    import torch_transformers
    from safetensors.torch import save_file
    model = {"type": "decoder", "n_layer": "8", "n_head": "4", "n_embd": "32", "block_size": "20", "vocab_size": "50",
             "dropout": "0.1", "batch_first": "false"}
    with open(sources + "/configs/transformer-pytorch.ini", encoding="utf-8") as f:
        head, tail = f.read().split("[model]")
    tail = tail[tail.index("[pipeline]"):]
    net = torch_transformers.of_config(model).train()
    exported = torch.export.export(net, (torch.ones(4, 20, dtype=torch.long),),
                                   dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(exported, "decoder.pt2")
    save_file(net.state_dict(), "decoder.safetensors")
    digests = []
    for keys, init in (({"from": "decoder.pt2"}, ""), (model, "init = decoder.safetensors\n")):
        with open("decoder.ini", "w", encoding="utf-8") as f:
            f.write(head + "[model]\n" + "".join("%s = %s\n" % key for key in keys.items()) + tail + "\n" + init)
        said = run(program, "train", "decoder.ini", "-q", "--dir", "decoder" + str(len(digests)))
        digests.append(re.search(r"weights_sha256 +(\w+)", said)[1])
    check("the tutorial's module has the digest of model.type = decoder", digests[0] == digests[1])


def follow_page(sources):
    """The commands of the page, in order; those with files that are not there are left out."""
    import torch
    with open(sources + "/docs/do/own-models.md", encoding="utf-8") as f:
        page = f.read()
    code = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names = {}
    exec(compile(code[0], "net.py", "exec"), names)
    more = {"train": ["-q", "--max-steps", "3", "--set", "train.eval_interval=3", "--batch-size", "8"], "generate": ["--tokens", "5"]}
    for line in re.findall(r"^    (ppcli .*)$", page, flags=re.M):
        words = shlex.split(line)
        if "book.txt" not in words and "cnn.pt2" not in words:
            run(*words, *more.get(words[1], []))
    names.update(torch=torch, model=names["Net"]())
    exec(compile(code[1], "back.py", "exec"), names)
    check("the module takes the weights of the program", True)


def main():
    program, sources = (os.path.abspath(word) for word in sys.argv[1:3])
    find_python()
    import torch
    from safetensors.torch import load_file
    sys.path[:0] = [sources + "/packaging", sources + "/tests/golden/pt2", sources + "/scripts/peers"]
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
    train_tutorial(program, sources)
    follow_page(sources)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
