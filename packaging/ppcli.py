# SPDX-License-Identifier: Apache-2.0
"""Hands a PyTorch module to ppcli.

    import ppcli
    ppcli.save(model, example, "my_model.pt2")

writes the program that `ppcli init my_model.pt2` and `model.from = my_model.pt2` take, and prints what ppcli
makes of it. Without this file the same is

    program = torch.export.export(model.train(), (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, "my_model.pt2")

and then `ppcli explain my_model.pt2`. Needs PyTorch 2.10 or newer."""

import os
import shutil
import subprocess
import sys

PROGRAM = "ppcli"


def find_program():
    """The program that this wheel installed, else one in PATH; None: there is none."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    return shutil.which(PROGRAM, path=beside + os.pathsep + os.environ.get("PATH", ""))


def explain(path):
    """Prints what becomes of a program, or why it cannot be trained; returns whether it can."""
    program = find_program()
    if not program:
        print("ppcli is not in PATH; it tells more: ppcli explain %s" % path)
        return False
    sys.stdout.flush()
    return subprocess.run([program, "explain", path], check=False).returncode == 0


def check_example(example):
    """The arguments of forward() as a tuple; refuses a batch that PyTorch would take for a constant."""
    import torch
    args = example if isinstance(example, tuple) else (example,)
    for i, x in enumerate(args):
        if isinstance(x, torch.Tensor) and (x.dim() == 0 or x.shape[0] < 2):
            raise ValueError("argument %d of the example has %s: dimension 0 is the batch, and needs 2 samples or "
                             "more, because torch.export takes 1 for a constant" % (i, list(x.shape)))
    return args


def save(model, example, path):
    """Exports the module as training runs it, for any number of samples, and writes it to `path`.

    example: the tensor that forward() takes, or a tuple of its arguments, with 2 samples or more in dimension 0.
    The module keeps its modes (train or eval). Prints what `ppcli explain` says of it, and returns
    whether ppcli can train it. What torch.export cannot export raises its own error."""
    import torch
    args = check_example(example)
    free = tuple({0: torch.export.Dim.DYNAMIC} if isinstance(x, torch.Tensor) else None for x in args)
    modes = [(part, part.training) for part in model.modules()]
    try:
        program = torch.export.export(model.train(), args, dynamic_shapes=free)
    finally:
        for part, training in modes:
            part.training = training
    torch.export.save(program, path)
    return explain(path)
