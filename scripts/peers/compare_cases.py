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
        self.samples = self.how_many()
        # What is divided by one another runs one after another.
        self.entries = sorted(self.ours() + [e for p in peers for e in p(self)],
                              key=lambda e: (e.base != self.base(), e.base, e.who != "ppcli"))

    unit, per_sample = "samples", 1  # what rates are told in
    same_start = False  # ppcli and its peers begin with the same weights and data
    makes_weights = False  # which a peer writes for ppcli
    measured_by = "train"  # the command of ppcli

    def how_many(self):
        """Samples of the data set."""
        return max(4 * self.batch, 16384 // self.batch * self.batch)

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
    """One stage on one GPU, for several precisions and numbers of micro-batches. In a rehearsal the
    processor is the device: that everything starts can be seen where there is none."""

    same_start = True

    def __init__(self, name, config, precisions, counts, ways, rehearsal):
        self.precisions, self.counts = ("f32",) if rehearsal else precisions, counts
        self.ways, self.device = ways, "cpu" if rehearsal else "cuda"
        super().__init__(name, config, [torch_gpu])

    def how_many(self):
        return 8 * self.batch if self.device == "cpu" else super().how_many()

    def key(self, precision, count):
        return "ppcli-%s-m%d" % (precision, count)

    def base(self, schedule=None):
        return self.key(self.precisions[0], self.counts[0])

    def precision_of(self, entry):
        return entry.key.split("-")[1]

    def each(self):
        return [(p, m) for p in self.precisions for m in self.counts]

    def on_device(self, precision):
        return ["--set", "run.backend=" + self.device, "--set", "run.precision=" + precision]

    def ours(self):
        return [Entry(self.key(p, m), "ppcli, %s, %s" % (p, many(m, "micro-batch")), "ppcli",
                      self.key(p, m), ["1", self.schedule, "--microbatches", str(m),
                                       *self.on_device(p)])
                for p, m in self.each()]


class GpuNetCase(GpuCase):
    """Of any model.type. PyTorch makes the weights that all begin with."""

    makes_weights = True

    def net(self):
        return ["--model=%s=%s" % m for m in self.model.items()] + ["--optimizer", self.optimizer]


class GpuTextCase(GpuNetCase):
    def __init__(self, *words):
        super().__init__(*words)
        self.unit, self.per_sample = "tokens", self.model.getint("block_size")

    def how_many(self):
        return min(super().how_many(), 128 * self.batch)


class GpuPipelineCase(GpuCase):
    """ppcli alone: a pipeline on parts of one device, each stage with multiprocessors of its own, so
    that idle time is real. What was measured stands beside what the simulator says."""

    measured_by = "bench"

    def ours(self):
        parts = ["--set", "run.partition_sms=" + ("on" if self.device == "cuda" else "off")]
        rows = [(1, "1f1b")] + [(n, s) for n in (2, 4) for s in ("1f1b", "zb-h1")]
        return [Entry("ppcli-%d-%s-m%d" % (n, s, m), "ppcli, %s, %s, %s" % (
            many(n, "stage"), s, many(m, "micro-batch")), "ppcli", self.key(1, m),
                      [str(n), s, "--microbatches", str(m), *self.on_device(self.precisions[0]),
                       *(parts if n > 1 else [])]) for m in self.counts for n, s in rows]

    def key(self, _, count):
        return "ppcli-1-1f1b-m%d" % count


def torch_gpu(case):
    return [Entry("torch-%s-%s-m%d" % (way, p, m), "PyTorch %s, %s, %s" % (
        way, p, many(m, "micro-batch")), "PyTorch", case.key(p, m),
                  ["torch_gpu.py", "--way", way, "--precision", p, "--device", case.device]
                  + case.problem(m))
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
        if parser.has_section(section):
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


SPEED = {"train_lr": "0.00001", "train_clip_norm": "0", "train_weight_decay": "0",
         "train_warmup_steps": None, "train_lr_schedule": None, "train_beta2": None,
         "train_eval_interval": None, "train_max_steps": None}
WAYS = "eager", "compile", "reduce-overhead"


def gpu_cases(rehearsal):
    """Those of docs/do/gpu-check.md. A low rate keeps the first losses comparable: the first steps of adam go
    by the sign of gradients, whose rounding differs. No dropout, for each has masks of its own."""
    def config(text, tiny, **keys):
        return changed(text, **{**keys, **(tiny if rehearsal else {})})

    mlp = {"model_sizes": "20 16*7 5", "train_batch_size": "32", "run_partition_sms": None}
    text = {"model_n_layer": "2", "model_n_head": "2", "model_n_embd": "32", "model_block_size": "16",
            "model_vocab_size": "61", "train_batch_size": "8"}
    made = {"data_dataset": "synthetic-tokens", "data_path": None, "pipeline_stages": "1",
            "pipeline_microbatches": "1", **SPEED}
    return [
        GpuCase("g1", config(shipped("gpu-small.ini"), mlp), ("tf32", "bf16"), (1,),
                ("eager", "compile", "graph"), rehearsal),
        GpuCase("g2", config(shipped("gpu-wide.ini"), mlp), ("bf16", "tf32"), (1, 8),
                ("compile", "graph"), rehearsal),
        GpuNetCase("g3", config(RESNET % ("depth = 50\nclasses = 1000", 1), {
            "model_depth": "18", "train_batch_size": "8"}, train_batch_size="128", **SPEED),
                   ("bf16", "tf32"), (1,), WAYS, rehearsal),
        GpuTextCase("g4", config(shipped("gpt-char-large.ini"), text, model_dropout="0",
                                 model_vocab_size="65", **made), ("bf16", "tf32"), (1,), WAYS,
                    rehearsal),
        GpuTextCase("gpt2", config(shipped("gpt2-124m.ini"), text, train_batch_size="32", **made),
                    ("bf16", "tf32"), (4,), WAYS, rehearsal),
        GpuPipelineCase("g5", config(shipped("gpu-pipeline.ini"), mlp), ("tf32",), (4, 8, 16), (),
                        rehearsal),
    ]


def cases(rehearsal=False):
    torch = [torch_accumulate, torch_pipelining]
    return {
        "c1": Case("c1", shipped("shallowspeed.ini"), [shallowspeed] + torch),
        "c2": Case("c2", C2, [shallowspeed] + torch),
        **{case.name: case for case in gpu_cases(rehearsal)},
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
