#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/optim.txt: some of 20 steps of PyTorch's optimizers, as hexadecimal floats.

usage: experiments/golden-optim.py > tests/golden/optim.txt

    gradients N STEPS          then STEPS lines of N values
    start N                    then one line of N values
    KIND lr momentum beta1 beta2 eps weight_decay        nesterov: SGD with nesterov=True
                               then the parameters after each step of SHOWN, a line each
"""
import torch

N, STEPS, SHOWN = 13, 20, (1, 2, 5, 20)
torch.manual_seed(7)
start = torch.randn(N)
# From tiny to large, one always zero, one changing sign: what the denominators of Adam are for.
size = torch.logspace(-6, 2, N)
size[4] = 0
grads = [torch.randn(N) * size for _ in range(STEPS)]


def line(t):
    return " ".join(float(x).hex() for x in t)


# kind, lr, momentum, beta1, beta2, eps, weight_decay
CASES = [
    ("sgd", 0.05, 0.0, 0.9, 0.999, 1e-8, 0.0),
    ("sgd", 0.05, 0.0, 0.9, 0.999, 1e-8, 0.01),
    ("momentum", 0.02, 0.9, 0.9, 0.999, 1e-8, 0.0),
    ("momentum", 0.02, 0.9, 0.9, 0.999, 1e-8, 0.01),
    ("nesterov", 0.02, 0.9, 0.9, 0.999, 1e-8, 0.01),
    ("adam", 1e-3, 0.9, 0.9, 0.999, 1e-8, 0.0),
    ("adam", 0.01, 0.9, 0.8, 0.95, 1e-6, 0.1),
    ("adamw", 1e-3, 0.9, 0.9, 0.999, 1e-8, 0.01),
    ("adamw", 0.01, 0.9, 0.8, 0.95, 1e-6, 0.1),
]


def make(kind, p, lr, momentum, beta1, beta2, eps, wd):
    if kind == "sgd":
        return torch.optim.SGD([p], lr=lr, weight_decay=wd)
    if kind in ("momentum", "nesterov"):
        return torch.optim.SGD([p], lr=lr, momentum=momentum, weight_decay=wd,
                               nesterov=kind == "nesterov")
    cls = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return cls([p], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=wd)


print(f"# torch {torch.__version__}; made by experiments/golden-optim.py")
print(f"gradients {N} {STEPS}")
for g in grads:
    print(line(g))
print(f"start {N}")
print(line(start))
for kind, *args in CASES:
    print(kind, *(float(a).hex() for a in args))
    p = torch.nn.Parameter(start.clone())
    opt = make(kind, p, *args)
    for step, g in enumerate(grads, 1):
        p.grad = g.clone()
        opt.step()
        if step in SHOWN:
            print(line(p.detach()))
