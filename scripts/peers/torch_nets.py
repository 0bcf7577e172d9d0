# SPDX-License-Identifier: Apache-2.0
"""The convolutional networks of a [model] section in PyTorch, and running statistics by ppcli's rule.
For the peer torch_conv.py, tests/cli/parity_torch.py and experiments/cifar-accuracy.py: one description,
so that they cannot disagree. A resnet is torchvision's own, so its names and shapes are too."""

import re

import torch
import torchvision

BLOCKS = {18: "resnet18", 34: "resnet34", 50: "resnet50", 101: "resnet101"}
GROUPS = 32  # of group norm
ACTIVATIONS = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU, "tanh": torch.nn.Tanh,
               "gelu_tanh": lambda: torch.nn.GELU(approximate="tanh"), "silu": torch.nn.SiLU}


class Same(torch.nn.Module):
    """Pads as TensorFlow's "same" does, so that a window with this stride gives ceil(n / stride)."""

    def __init__(self, kernel, stride, value, inner):
        super().__init__()
        self.kernel, self.stride, self.value, self.inner = kernel, stride, value, inner

    def forward(self, x):
        ends = []
        for n in reversed(x.shape[-2:]):
            all_of_it = max(0, (-(-n // self.stride) - 1) * self.stride + self.kernel - n)
            ends += [all_of_it // 2, all_of_it - all_of_it // 2]
        return self.inner(torch.nn.functional.pad(x, ends, value=self.value))


def resnet(depth, stem="imagenet", norm="batch", classes=10, stride="3x3", padding="symmetric",
           norm_momentum=0.1):
    """torchvision's; stem = cifar: its first convolution is 3x3 with stride 1, no max pool follows.
    The last three are for the nets of other frameworks."""
    more = {}
    if norm == "group":
        more["norm_layer"] = lambda channels: torch.nn.GroupNorm(GROUPS, channels)
    net = getattr(torchvision.models, BLOCKS[depth])(num_classes=classes, **more)
    if stem == "cifar":
        net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        torch.nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = torch.nn.Identity()
    for m in net.modules():
        if stride == "1x1" and isinstance(m, torchvision.models.resnet.Bottleneck):
            m.conv1.stride, m.conv2.stride = m.conv2.stride, m.conv1.stride
        if isinstance(m, torch.nn.BatchNorm2d):
            m.momentum = norm_momentum
    if padding == "same":
        pad_as_tensorflow(net)
    return net


def pad_as_tensorflow(net):
    for parent in list(net.modules()):
        for name, m in list(parent.named_children()):
            if isinstance(m, torch.nn.MaxPool2d):
                m.padding = 0
                setattr(parent, name, Same(m.kernel_size, m.stride, float("-inf"), m))
            elif isinstance(m, torch.nn.Conv2d) and m.kernel_size[0] > 1:
                m.padding = (0, 0)
                setattr(parent, name, Same(m.kernel_size[0], m.stride[0], 0.0, m))


class Sequential(torch.nn.Module):
    """model.layers, for images of a shape: word i is the module layers.i, as in ppcli's files."""

    def __init__(self, words, shape):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        self.back = []  # of each word: how many words back its second input is, 0: it has none
        x = torch.zeros(2, *shape)
        with torch.no_grad():
            before = []
            for word in words.split():
                self.layers.append(self.module(word, x))
                self.back.append(int(word[4:]) if word.startswith("add:") else 0)
                before.append(x)
                x = self.one(len(before) - 1, x, before)

    @staticmethod
    def module(word, x):
        nn = torch.nn
        name, _, rest = word.partition(":")
        if name in ACTIVATIONS:
            return ACTIVATIONS[name]()
        if name in ("add", "flatten") or (name == "avgpool" and not rest):
            return {"add": nn.Identity, "flatten": nn.Flatten,
                    "avgpool": lambda: nn.AdaptiveAvgPool2d(1)}[name]()
        if name == "batchnorm":
            return nn.BatchNorm2d(x.shape[1])
        if name == "groupnorm":
            return nn.GroupNorm(int(rest), x.shape[1])
        if name == "linear":
            features = x[0].numel()
            return nn.Sequential(nn.Flatten(), nn.Linear(features, int(rest))) if x.dim() > 2 else \
                nn.Linear(features, int(rest))
        size, *more = rest.split(",")
        more = dict(m.split("=") for m in more)
        found = re.fullmatch(r"(?:(\d+)x)?(\d+)(?:/(\d+))?", size)
        out, kernel, stride = (int(g) if g else None for g in found.groups())
        stride = stride or (1 if name == "conv" else kernel)
        pad = more.get("pad", str(kernel // 2) if name == "conv" else "0")
        p = 0 if pad == "same" else int(pad)
        if name == "conv":
            m = nn.Conv2d(x.shape[1], out, kernel, stride, p, groups=int(more.get("groups", 1)),
                          bias=more.get("bias") != "off")
        else:
            m = {"maxpool": nn.MaxPool2d, "avgpool": nn.AvgPool2d}[name](kernel, stride, p)
        lowest = float("-inf") if name == "maxpool" else 0.0
        return Same(kernel, stride, lowest, m) if pad == "same" else m

    def one(self, i, x, before):
        x = self.layers[i](x)
        return x + before[i - self.back[i]] if self.back[i] else x

    def forward(self, x):
        before = []
        for i in range(len(self.layers)):
            before.append(x)
            x = self.one(i, x, before)
        return x


def of_config(model, classes=10, shape=(3, 32, 32)):
    """The network of a [model] section, a mapping of its keys to text; shape: of a sequential's images."""
    if model["type"] == "resnet":
        return resnet(int(model["depth"]), model.get("stem", "imagenet"), model.get("norm", "batch"),
                      int(model.get("classes", 0)) or classes, model.get("stride", "3x3"),
                      model.get("padding", "symmetric"), float(model.get("norm_momentum", 0.1)))
    if model["type"] == "sequential":
        return Sequential(model["layers"], shape)
    raise ValueError("no model of type %s here" % model["type"])


def name_in_files(name):
    """Of a tensor of state_dict(): what Same and Sequential put around a module is not in it."""
    return re.sub(r"^(layers\.\d+)\.1\.", r"\1.", name).replace(".inner.", ".")


class Statistics:
    """Running statistics of batch norm by ppcli's rule: committed once a step, from the sums over
    all its micro-batches; the variance without bias. With one micro-batch this is PyTorch's rule.
    While this object is in charge the modules themselves leave their buffers alone."""

    def __init__(self, net):
        self.norms = {}
        for m in net.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                self.norms[m] = [m.momentum, m.num_batches_tracked.item(), 0, 0.0, 0.0]
                m.momentum = 0.0
                m.register_forward_pre_hook(self.count)

    def count(self, m, inputs):
        if m.training:
            x = inputs[0].detach().double()
            sums = self.norms[m]
            sums[2] += x.numel() // x.shape[1]
            sums[3] = sums[3] + x.sum((0, 2, 3))
            sums[4] = sums[4] + (x * x).sum((0, 2, 3))

    def commit(self):
        for m, (momentum, steps, n, s, q) in self.norms.items():
            mean = s / n
            variance = (q / n - mean * mean) * n / (n - 1)
            m.running_mean.lerp_(mean.to(m.running_mean.dtype), momentum)
            m.running_var.lerp_(variance.to(m.running_var.dtype), momentum)
            m.num_batches_tracked.fill_(steps + 1)  # PyTorch has counted micro-batches
            self.norms[m] = [momentum, steps + 1, 0, 0.0, 0.0]
