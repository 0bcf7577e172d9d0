#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a GPU: the same weights to begin with, the same data in the same order as ppcli's.

  torch_gpu.py --sizes 784-1024x3-10 --batch 128 --microbatches 1 --way graph --precision tf32
  torch_gpu.py --model type=resnet --model depth=50 --optimizer adam ... --write FILE

--way: eager; compile, torch.compile of forward and loss; reduce-overhead, the same in that mode; graph,
the whole step with its optimizer captured once and replayed. Data lie on the GPU. A net of --model begins
with numbers of PyTorch, which --write leaves in FILE for ppcli. With --serve it stays and measures one
block of so many seconds for every number on its standard input."""

import json
import sys

import common
import ppcli_numbers

EPOCHS = 4  # orders that are made; then the first one comes again
TOLD = 3    # losses of the first steps


def parse():
    parser = common.options(__doc__.splitlines()[0])
    parser.add_argument("--way", choices=("eager", "compile", "reduce-overhead", "graph"),
                        default="eager")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: f32, for losses and to see that everything starts (cuda)")
    parser.add_argument("--model", type=common.setting, action="append", metavar="KEY=VALUE",
                        help="a key of the config's [model], instead of --sizes; repeatable")
    parser.add_argument("--write", metavar="FILE", help="the first weights, and end")
    parser.add_argument("--serve", action="store_true", help="blocks on demand")
    common.optimizer_option(parser)
    args = parser.parse_args()
    common.check(parser, args)
    if args.device == "cpu" and args.precision != "f32":
        parser.error("--device cpu is f32")
    return args


class Mlp:
    """A net and its data, on the device: [samples] of inputs and of targets."""

    def __init__(self, torch, args):
        self.torch, self.args = torch, args
        self.net = torch.nn.Sequential(*self.layers())
        images, labels = ppcli_numbers.synthetic(torch, self.arange, args.seed, args.samples,
                                                 args.sizes[0], args.sizes[-1])
        self.inputs, self.targets = images.to(torch.uint8), labels

    def arange(self, n):
        return self.torch.arange(n, dtype=self.torch.int64, device=self.args.device)

    def layers(self):
        torch, sizes = self.torch, self.args.sizes
        out = []
        for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
            last = i == len(sizes) - 2
            linear = torch.nn.Linear(n_in, n_out, device=self.args.device)
            w = ppcli_numbers.weight(torch, self.arange, lambda x: x.to(torch.float32),
                                     self.args.seed, i, n_in, n_out, "none" if last else "relu")
            with torch.no_grad():
                linear.weight.copy_(w)
                linear.bias.zero_()
            out += [linear] if last else [linear, torch.nn.ReLU(inplace=True)]
        return out

    def ready(self, rows):
        """What the net takes."""
        return self.inputs[rows].to(self.torch.float32) * (1 / 255)


class Images(Mlp):
    """Of 32x32x3; images are [rows][columns][channels] in ppcli and lie so in memory here too."""

    def __init__(self, torch, args):
        import torch_nets
        self.torch, self.args = torch, args
        self.name = torch_nets.name_in_files
        model = dict(args.model)
        self.net = made(torch, args, lambda: torch_nets.of_config(model)).to(
            memory_format=torch.channels_last)
        classes = int(model.get("classes", 0)) or 10
        images, labels = ppcli_numbers.synthetic(torch, self.arange, args.seed, args.samples,
                                                 32 * 32 * 3, classes)
        self.inputs = images.to(torch.uint8).reshape(-1, 32, 32, 3)
        self.targets = labels & 255  # labels are bytes

    def ready(self, rows):
        return super().ready(rows).permute(0, 3, 1, 2)


class Texts(Mlp):
    def __init__(self, torch, args):
        import torch_transformers
        self.torch, self.args = torch, args
        self.name = str
        keys = torch_transformers.Keys(dict(args.model))
        self.net = made(torch, args, lambda: torch_transformers.of_config(dict(args.model)))
        self.inputs, self.targets = ppcli_numbers.synthetic_tokens(
            torch, self.arange, args.seed, args.samples, keys.positions, keys.tokens)

    def ready(self, rows):
        return self.inputs[rows]


def made(torch, args, make):
    """The net on the device; its numbers are made on the processor, so that they are the same for
    every way of running it."""
    torch.manual_seed(args.seed)
    return make().to(args.device).train()


def problem_of(torch, args):
    if not args.model:
        return Mlp(torch, args)
    images = dict(args.model)["type"] in ("resnet", "sequential")
    if images:
        common.need("torchvision")
    return (Images if images else Texts)(torch, args)


def write_weights(torch, problem, path):
    """As safetensors: the length of a header, the header, the numbers."""
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    header, parts, at = {}, [], 0
    for key, t in problem.net.state_dict().items():
        raw = t.detach().cpu().contiguous().numpy().tobytes()
        header[problem.name(key)] = {"dtype": kinds[t.dtype], "shape": list(t.shape),
                                     "data_offsets": [at, at + len(raw)]}
        parts.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.writelines(parts)


class Training:
    def __init__(self, torch, args, problem):
        self.torch, self.args, self.problem, self.net = torch, args, problem, problem.net
        self.opt = self.optimizer()
        orders = [ppcli_numbers.permutation(torch, torch.arange, args.seed, args.samples, e)
                  for e in range(EPOCHS)]
        self.order = torch.tensor(orders, device=args.device).reshape(-1, args.batch)
        self.at = torch.zeros(1, dtype=torch.int64, device=args.device)
        self.loss = torch.zeros((), device=args.device)
        self.losses = []
        compiled = args.way in ("compile", "reduce-overhead")
        self.of_part = self.compiled() if compiled else self.loss_of
        # What a recorded backward pass gives lies where the next one writes: several micro-batches
        # add to gradients that lie elsewhere.
        self.keeps = compiled and args.microbatches > 1
        for p in self.net.parameters() if self.keeps else ():
            p.grad = torch.zeros_like(p)
        for _ in range(TOLD):
            self.step_eager()
            self.losses.append(float(self.loss))
        self.step = self.capture() if args.way == "graph" else self.step_eager

    def compiled(self):
        """An mlp has always been compiled in the mode that is best for its size. On the processor no
        code is made, which takes minutes: what is traced there is what a GPU would compile."""
        for data in (self.problem.inputs, self.problem.targets):
            self.torch._dynamo.mark_static_address(data)  # or a recorded pass copies all of it
        if self.args.device == "cpu":
            return self.torch.compile(self.loss_of, backend="aot_eager")
        mode = "reduce-overhead" if self.args.way == "reduce-overhead" else "default"
        if not self.args.model:
            mode = "max-autotune" if self.args.batch >= 1024 else "reduce-overhead"
        return self.torch.compile(self.loss_of, mode=mode)

    def optimizer(self):
        import torch_parts
        return torch_parts.optimizer(self.net.parameters(), self.args)[0]

    def loss_of(self, rows):
        x, y = self.problem.ready(rows), self.problem.targets[rows]
        with self.torch.autocast(self.args.device, self.torch.bfloat16,
                                 enabled=self.args.precision == "bf16"):
            out = self.net(x)
        return self.torch.nn.functional.cross_entropy(
            out.to(self.torch.float32).reshape(-1, out.shape[-1]), y.reshape(-1),
            reduction="sum") * (len(rows) / self.args.batch / y.numel())

    def step_eager(self):
        """Everything that a step does; what it needs from the host is decided without waiting."""
        rows = self.order.index_select(0, self.at)[0]
        self.opt.zero_grad(set_to_none=not self.keeps)
        self.loss.zero_()
        for part in rows.split(self.args.batch // self.args.microbatches):
            one = self.of_part(part)
            one.backward()
            self.loss += one.detach()
        self.opt.step()
        self.at.copy_((self.at + 1) % len(self.order))

    def capture(self):
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(TOLD):
                self.step_eager()
        cuda.current_stream().wait_stream(side)
        self.opt.zero_grad(set_to_none=True)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.step_eager()
        return graph.replay


def main():
    args = parse()
    common.need("torch")
    import torch
    if args.device == "cuda" and not torch.cuda.is_available() and not args.write:
        common.skip("PyTorch %s finds no GPU" % torch.__version__)
    if args.way == "graph" and args.device == "cpu":
        common.skip("a step is captured on a GPU only")
    if args.way in ("compile", "reduce-overhead") and not hasattr(torch, "compile"):
        common.skip("PyTorch %s has no torch.compile" % torch.__version__)
    if args.write:
        args.device, args.samples = "cpu", args.batch
    if args.device == "cpu":
        torch.set_num_threads(1)
    tf32 = args.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    problem = problem_of(torch, args)
    if args.write:
        write_weights(torch, problem, args.write)
        return
    t = Training(torch, args, problem)
    if args.model:
        args.sizes = dict(args.model)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None

    def blocks():
        common.report("torch " + args.way, torch.__version__, args,
                      common.measure(t.step, args, barrier=wait), precision=args.precision,
                      losses=t.losses)

    if not args.serve:
        blocks()
        return
    args.blocks = 1
    for line in sys.stdin:
        args.seconds = float(line)
        blocks()


if __name__ == "__main__":
    main()
