# SPDX-License-Identifier: Apache-2.0
"""What compare.py runs: for each case a config of ppcli, and the entries beside it."""

import collections
import configparser
import io
import os

import common

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "..", "configs")

C2 = """; The clean pipeline: equal layers, small micro-batches.
[data]
dataset = synthetic
[model]
sizes = 784 512*16 10
[pipeline]
stages = 2
microbatches = 16
schedule = zb-h1
[train]
batch_size = 512
optimizer = sgd
lr = 0.01
"""

RESNET = """; Speed of a ResNet on images of 32x32.
[data]
dataset = synthetic
shape = 32x32x3
[model]
type = resnet
%s
[pipeline]
stages = 2
microbatches = %d
schedule = 1f1b
[train]
batch_size = 64
optimizer = adam
lr = 0.001
"""

TEXT = """; Speed of a GPT.
[data]
dataset = synthetic-tokens
[model]
type = gpt
n_layer = %d
n_head = %d
n_embd = %d
block_size = %d
vocab_size = %d
[pipeline]
stages = 2
microbatches = 4
schedule = 1f1b
[train]
batch_size = %d
optimizer = adamw
lr = 0.001
"""

SERVERS = ("torch_gpu.py",)  # peers that stay between blocks
SCHEDULES = ("gpipe", "1f1b", "interleaved-zb", "zb-v")

# label: text of the row; who: the program; base: the key of the ppcli entry it is divided by;
# words: the peer's command line, or stages and schedule of a ppcli entry.
Entry = collections.namedtuple("Entry", "key label who base words")


def many(n, what):
    plural = "" if n == 1 else "es" if what.endswith("ch") else "s"
    return "%d %s%s" % (n, what, plural)


class Case:
    """A problem, read from a config so that ppcli and the peers cannot disagree about it."""

    def __init__(self, name, config, peers):
        parser = configparser.ConfigParser(inline_comment_prefixes=(";",))
        parser.read_string(config)
        self.name = name
        self.config = config
        data = parser["data"]["dataset"]
        self.dataset = data if data.startswith("synthetic") else "synthetic"
        self.model = parser["model"]
        self.sizes = self.model.get("sizes") or ", ".join("%s %s" % m for m in self.model.items())
        self.stages = parser["pipeline"].getint("stages")
        self.schedule = parser["pipeline"]["schedule"]
        self.microbatches = parser["pipeline"].getint("microbatches")
        self.batch = parser["train"].getint("batch_size")
        self.optimizer = parser["train"]["optimizer"]
        self.lr = parser["train"]["lr"]
        self.samples = max(4 * self.batch, 16384 // self.batch * self.batch)
        # What is divided by one another runs one after another.
        self.entries = sorted(self.ours() + [e for p in peers for e in p(self)],
                              key=lambda e: (e.base != self.base(), e.base, e.who != "ppcli"))

    unit, per_sample = "samples", 1  # what rates are told in
    same_start = False  # ppcli and its peers begin with the same weights and data

    def precision_of(self, entry):
        return None

    def ours(self):
        """The config's schedule is the base of every ratio that has none of its own."""
        out = [Entry(self.base(), "ppcli, %s, %s" % (many(self.stages, "stage"), self.schedule),
                     "ppcli", self.base(), [str(self.stages), self.schedule]),
               Entry("ppcli-1", "ppcli, 1 stage", "ppcli", self.base(), ["1", self.schedule])]
        out += [Entry(self.base(s), "ppcli, %s, %s" % (many(self.stages, "stage"), s), "ppcli",
                      self.base(s), [str(self.stages), s])
                for s in SCHEDULES + ("zb-h2",) if s != self.schedule]
        return out

    def base(self, schedule=None):
        return "ppcli-%d-%s" % (self.stages, schedule or self.schedule)

    def net(self):
        return ["--sizes=" + self.sizes]

    def problem(self, microbatches=None):
        """The words that describe it to any peer."""
        return self.net() + ["--batch", str(self.batch), "--microbatches",
                str(microbatches or self.microbatches), "--lr", self.lr,
                "--samples", str(self.samples)]


class NetCase(Case):
    """Nets of any model.type: steps take long, and the samples of a few are enough."""

    def __init__(self, name, config, peers):
        super().__init__(name, config, peers)
        self.samples = 4 * self.batch

    def net(self):
        return [w for m in self.model.items() for w in ("--model", "%s=%s" % m)]


class TextCase(NetCase):
    """A transformer; its rates are those of tokens."""

    def __init__(self, name, config):
        super().__init__(name, config, [torch_text])
        self.unit, self.per_sample = "tokens", self.model.getint("block_size")
        self.samples = 128 * self.batch  # an epoch is longer than a block: no evaluation in between


class GpuCase(Case):
    """One stage on one GPU, for several precisions and numbers of micro-batches."""

    same_start = True

    def __init__(self, name, config, precisions, counts, ways):
        self.precisions, self.counts = precisions, counts
        self.ways = ways
        super().__init__(name, config, [torch_gpu])

    def key(self, precision, count):
        return "ppcli-%s-m%d" % (precision, count)

    def base(self, schedule=None):
        return self.key(self.precisions[0], self.counts[0])

    def precision_of(self, entry):
        return entry.key.split("-")[1]

    def each(self):
        return [(p, m) for p in self.precisions for m in self.counts]

    def ours(self):
        return [Entry(self.key(p, m), "ppcli, %s, %s" % (p, many(m, "micro-batch")), "ppcli",
                      self.key(p, m), ["1", self.schedule, "--microbatches", str(m), "--set",
                                       "run.backend=cuda", "--set", "run.precision=" + p])
                for p, m in self.each()]


def torch_gpu(case):
    return [Entry("torch-%s-%s-m%d" % (way, p, m), "PyTorch %s, %s, %s" % (
        way, p, many(m, "micro-batch")), "PyTorch", case.key(p, m),
                  ["torch_gpu.py", "--way", way, "--precision", p] + case.problem(m))
            for p, m in case.each() for way in case.ways]


def torch_accumulate(case):
    ways = [(case.microbatches, case.stages, "the same micro-batches"),
            (case.microbatches, 1, "the same micro-batches"),
            (1, case.stages, "the whole batch at once"), (1, 1, "the whole batch at once")]
    return [Entry("torch-m%d-%d" % (m, t), "PyTorch, %s, %s" % (many(t, "thread"), text), "PyTorch",
                  case.base(), ["torch_accumulate.py", "--optimizer", case.optimizer,
                                "--threads", str(t)] + case.problem(m)) for m, t, text in ways]


def torch_conv(case):
    ways = [(case.microbatches, "the same micro-batches"), (1, "the whole batch at once")]
    return [Entry("torch-%s-m%d" % (order, m), "PyTorch, %s, %s, %s" % (
        many(case.stages, "thread"), order, text), "PyTorch", case.base(),
                  ["torch_conv.py", "--optimizer", case.optimizer, "--threads", str(case.stages),
                   "--format", order] + case.problem(m))
            for m, text in ways for order in ("channels_last", "contiguous")]


def torch_text(case):
    ways = [(case.microbatches, "the same micro-batches"), (1, "the whole batch at once")]
    return [Entry("torch-m%d" % m, "PyTorch, %s, %s" % (many(case.stages, "thread"), text), "PyTorch",
                  case.base(), ["torch_text.py", "--optimizer", case.optimizer, "--threads",
                                str(case.stages)] + case.problem(m)) for m, text in ways]


def torch_pipelining(case):
    name = "torch.distributed.pipelining"
    return [Entry("pipelining-" + s, "%s, %d processes, %s" % (name, case.stages, s), name,
                  case.base(s), ["torch_pipelining.py", "--optimizer", case.optimizer, "--stages",
                                 str(case.stages), "--schedule", s] + case.problem())
            for s in SCHEDULES]


def shallowspeed(case):
    ways = [(1, "naive", 1), (1, "naive", 2), (2, "naive", 1), (2, "gpipe", 1)]
    if common.cores() >= 4:
        ways += [(2, "naive", 2), (2, "gpipe", 2)]
    return [Entry("shallowspeed-%d-%s-%d" % (r, s, t), "shallowspeed, %s, %s" % (
        many(r, "rank") + (", " + s if r > 1 else ""), many(t, "BLAS thread")), "shallowspeed",
                  case.base(), ["shallowspeed.py", "--ranks", str(r), "--schedule", s,
                                "--threads", str(t)] + case.problem()) for r, s, t in ways]


def shipped(name):
    with open(os.path.join(CONFIGS, name), encoding="utf-8") as f:
        return f.read()


def changed(config, **keys):
    """The config with other values; None: without the key. section_key=value"""
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",))
    parser.read_string(config)
    for name, value in keys.items():
        section, key = name.split("_", 1)
        parser.remove_option(section, key)
        if value is not None:
            parser[section][key] = value
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def in_small_steps(config):
    """A step of the config as shipped takes seconds: the same layers, a quarter of the batch,
    micro-batches enough for a pipeline, and a rate with which the first losses can be compared."""
    return changed(config, train_batch_size="1024", pipeline_microbatches="8", train_lr="0.0001")


def cases():
    torch = [torch_accumulate, torch_pipelining]
    return {
        "c1": Case("c1", shipped("shallowspeed.ini"), [shallowspeed] + torch),
        "c2": Case("c2", C2, [shallowspeed] + torch),
        "g1": GpuCase("g1", shipped("gpu-small.ini"), ("tf32", "bf16"), (1,),
                      ("eager", "compile", "graph")),
        "g2": GpuCase("g2", shipped("gpu-wide.ini"), ("bf16", "tf32"), (1, 8),
                      ("compile", "graph")),
        "resnet18": NetCase("resnet18", RESNET % ("depth = 18\nstem = cifar", 8), [torch_conv]),
        "resnet50": NetCase("resnet50", RESNET % ("depth = 50\nclasses = 1000", 4), [torch_conv]),
        "gpt-char": TextCase("gpt-char", TEXT % (4, 4, 128, 64, 65, 12)),
        "gpt-char-large": TextCase("gpt-char-large", TEXT % (6, 6, 384, 256, 65, 16)),
        "gpt2-124m": TextCase("gpt2-124m", TEXT % (12, 12, 768, 64, 50257, 4)),
        # its own cut is for two stages only
        "transformer-pytorch": TextCase("transformer-pytorch", changed(
            shipped("transformer-pytorch.ini"), pipeline_split_at=None)),
        "mlp16": Case("mlp16", in_small_steps(shipped("mlp-16x1024.ini")), torch),
    }
