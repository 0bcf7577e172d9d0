#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch is the judge of transformers:

    parity_text.py PPCLI ROOT CASE... [--self]

Besides what parity.py compares: 20 steps of AdamW with clipping and decay of weights, and of Muon, and logits after
training. Where transformers is installed, Hugging Face's model must give the logits of ours. Each case
reads another kind of data. --self: PyTorch in single precision takes the place of ppcli.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has torch, numpy and
safetensors."""

import configparser
import copy
import importlib.util
import os
import sys

sys.dont_write_bytecode = True
import parity  # noqa: E402

NEEDS = "import torch, numpy, safetensors.torch"
T, V, LABELS, SEED = 24, 61, 3, 1
SMALL = "n_layer = 2\nn_head = 4\nn_embd = 32\nblock_size = %d\n" % T

# name: [model], kind of data, rows of a batch, micro-batches, stages of ppcli
CASES = {
    "gpt": ("type = gpt\n" + SMALL, "text", 6, 3, 3),
    "gpt-untied": ("type = gpt\ntie_weights = off\nbias = false\nn_hidden = 48\nffn_activation = gelu\n"
                   + SMALL, "bytes", 6, 2, 2),
    "llama": ("type = llama\nn_kv_head = 2\nn_hidden = 80\nrope_base = 500\n" + SMALL, "tokens", 6, 3,
              2),
    "llama-tied": ("type = llama\nn_kv_head = 1\ntie_weights = on\nnorm_eps = 1e-6\n" + SMALL,
                   "tokens", 4, 1, 1),
    "gpt-ignored": ("type = gpt\n" + SMALL, "ignored", 6, 3, 2),
    "encoder": ("type = encoder\nn_hidden = 48\n" + SMALL, "labels", 7, 3, 2),
    "encoder-masked": ("type = encoder\nmask_padding = true\n" + SMALL, "labels", 7, 3, 3),
    "encoder-first": ("type = encoder\npooling = first\nffn_activation = gelu\n" + SMALL, "labels", 8,
                      2, 3),
    "decoder": ("type = decoder\nn_hidden = 64\n" + SMALL, "tokens", 6, 3, 2),
    "decoder-rows": ("type = decoder\nbatch_first = false\n" + SMALL, "tokens", 8, 2, 3),
}
# name: keys of [train], learning rate, threshold of the gradients' norm
OPTIMIZERS = {"sgd": ("", 0.2, None),
              "adamw": ("weight_decay=0.1 decay=weights beta2=0.99 clip_norm=0.5", 0.003, 0.5),
              "muon": ("muon_lr=0.02 momentum=0.95 weight_decay=0.1 decay=weights beta2=0.99", 0.003, None),
              "muon-rms": ("momentum=0.95 weight_decay=0.1 decay=weights beta2=0.99", 0.003, None)}


def muon(torch, decayed, rest, matrices, rms):
    """torch.optim.Muon for the matrices, AdamW for all else. Its products are in bfloat16; the judge is
    what it computes in the precision of the net."""
    kinds = [torch.optim.Muon(matrices, lr=0.003 if rms else 0.02, weight_decay=0.1, momentum=0.95,
                              adjust_lr_fn="match_rms_adamw" if rms else None),
             torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                               lr=0.003, betas=(0.9, 0.99))]

    def step():
        half, torch.bfloat16 = torch.bfloat16, matrices[0].dtype
        try:
            for kind in kinds:
                kind.step()
        finally:
            torch.bfloat16 = half
    return step


class Stream:
    """Two splits of tokens in a row; samples are windows, the target of a token is the next one."""

    def __init__(self, case, kind, scratch, root):
        import numpy
        self.numpy, self.batch, self.ignored = numpy, case.batch, -1
        if kind in ("tokens", "ignored"):
            draw = numpy.random.default_rng(7)
            all_of_it = numpy.cumsum(draw.integers(0, 4, 3000)) % V
            parts = all_of_it[:2700], all_of_it[2700:]
            for name, part in zip(("train", "val"), parts):
                part.astype("<u2").tofile("%s/%s.bin" % (scratch, name))
            self.tokens, self.train = V, parts[0]
            self.text = "dataset = tokens\npath = %s\n" % scratch
            case.model += "vocab_size = %d\n" % V
            if kind == "ignored":
                self.ignored = 7
                self.text += "ignored_token = 7\n"
        else:
            with open(os.path.join(root, "LICENSE"), encoding="ascii") as f:
                text = f.read().replace("a", "\u00e9")
            with open(scratch + "/text.txt", "w", encoding="utf-8") as f:
                f.write(text)
            found = sorted(set(text))
            numbers = text.encode() if kind == "bytes" else [found.index(c) for c in text]
            self.tokens = 256 if kind == "bytes" else len(found)
            self.train = numpy.array(list(numbers))[:int((1 - 0.1) * len(numbers))]
            self.text = "dataset = text\ntrain_file = %s/text.txt\ntokens = %s\n" % (
                scratch, "bytes" if kind == "bytes" else "chars")

    def batches(self, torch):
        import ppcli_numbers
        n = len(self.train) - T
        for step in range(parity.STEPS):
            starts = ppcli_numbers.windows(self.numpy, self.numpy.arange, SEED, n, step * self.batch,
                                           self.batch)
            rows = torch.tensor(self.train[starts[:, None] + self.numpy.arange(T + 1)])
            yield rows[:, :-1], rows[:, 1:].masked_fill(rows[:, 1:] == self.ignored, -100)


class Labelled:
    """Texts of several lengths with labels: token 0 fills up short ones, a byte is 1 more."""

    def __init__(self, case, _, scratch, __):
        import numpy
        self.numpy, self.batch, self.tokens = numpy, case.batch, 257
        draw = numpy.random.default_rng(7)
        self.inputs, self.labels = numpy.zeros((70, T), int), draw.integers(0, LABELS, 70)
        for name in ("test", "train"):
            with open("%s/%s.tsv" % (scratch, name), "wb") as f:
                for row, label in zip(self.inputs, self.labels):
                    n = draw.integers(1, T + 5)
                    text = 97 + draw.integers(0, 5, n) + 7 * label
                    row[:] = 0
                    row[:n] = text[:T] + 1
                    f.write(b"%d\t%s\n" % (label, bytes(text.tolist())))
        self.text = ("dataset = text-labels\ntrain_file = %s/train.tsv\ntest_file = %s/test.tsv\n"
                     "tokens = bytes\n" % (scratch, scratch))

    def batches(self, torch):
        import ppcli_numbers
        for epoch in range(parity.STEPS):
            order = ppcli_numbers.permutation(self.numpy, self.numpy.arange, SEED, len(self.labels),
                                              epoch)
            for i in range(0, len(order), self.batch):
                rows = order[i:i + self.batch]
                yield torch.tensor(self.inputs[rows]), torch.tensor(self.labels[rows])


class Case(parity.Case):
    def __init__(self, torch, root, name, scratch):
        import torch_transformers
        self.model, kind, self.batch, microbatches, stages = CASES[name]
        self.data = (Labelled if kind == "labels" else Stream)(self, kind, scratch, root)
        parser = configparser.ConfigParser()
        parser.read_string("[model]\n" + self.model)
        self.keys = torch_transformers.Keys(parser["model"], self.data.tokens, LABELS)
        torch.manual_seed(SEED)
        net = torch_transformers.of_config(parser["model"], self.data.tokens, LABELS)
        with torch.no_grad():
            for p in net.parameters():  # no bias is 0, no scale 1, no attention is even
                p += 0.1 * torch.randn_like(p)
        super().__init__(torch, net, scratch, microbatches,
                         "[data]\n%s[model]\n%s[pipeline]\nstages = %d\nmicrobatches = %d\n"
                         "[train]\nbatch_size = %d\nepochs = %d\nseed = %d\neval_interval = 7\n"
                         % (self.data.text, self.model, stages, microbatches, self.batch,
                            parity.STEPS, SEED))

    def batches(self):
        return self.data.batches(self.torch)

    def by(self, optimizer, dtype):
        _, lr, limit = OPTIMIZERS[optimizer]
        torch, net = self.torch, copy.deepcopy(self.net).to(dtype).train()

        def steps(net):
            if optimizer == "sgd":
                return torch.optim.SGD(net.parameters(), lr=lr).step
            import torch_transformers
            decayed, rest = torch_transformers.decayed(net)
            if optimizer.startswith("muon"):
                inner = [p for n, p in net.named_parameters() if p.ndim == 2 and (".h." in n or "layers." in n)]
                names = {id(p) for p in inner}
                return muon(torch, [p for p in decayed if id(p) not in names], rest, inner,
                            optimizer == "muon-rms")
            adam = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                      {"params": rest, "weight_decay": 0.0}], lr=lr,
                                     betas=(0.9, 0.99))

            def step():
                torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
                adam.step()
            return step
        return self.by_torch(net, parity.STEPS, steps)

    def logits(self, net):
        with self.torch.no_grad():  # train(): PyTorch's layers have another way for tests
            return net.float().train()(next(self.batches())[0])

    def by_hugging_face(self):
        """Its logits with our weights; None: it has no such model, or is not here."""
        if importlib.util.find_spec("transformers") is None:
            return None
        k, kind = self.keys, type(self.net).__name__
        import transformers
        transformers.logging.set_verbosity_error()
        same = {"vocab_size": k.tokens, "tie_word_embeddings": k.tied}
        if kind == "Gpt" and k.bias:
            net = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                n_positions=k.positions, n_embd=k.channels, n_layer=k.layers, n_head=k.heads,
                layer_norm_epsilon=k.eps, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **same))
        elif kind == "Llama":
            net = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                max_position_embeddings=k.positions, hidden_size=k.channels,
                intermediate_size=k.hidden or 256, num_hidden_layers=k.layers,
                num_attention_heads=k.heads, num_key_value_heads=k.kv_heads, rms_norm_eps=k.eps,
                rope_theta=k.base, **same))
        else:
            return None
        told = net.load_state_dict(self.net.state_dict(), strict=False)
        if told.unexpected_keys or told.missing_keys != ["lm_head.weight"] * k.tied:
            raise SystemExit("Hugging Face's names differ: %s" % (told,))
        return self.torch.no_grad()(net)(next(self.batches())[0]).logits


def judge(torch, name, program, root, scratch):
    case, j = Case(torch, root, name, scratch), parity.Judge(name)
    theirs = case.by_hugging_face()
    if theirs is not None:
        j.tensors("logits of Hugging Face", case.logits(case.net), theirs)
    for optimizer, (keys, lr, _) in OPTIMIZERS.items():
        losses, gradients, net = case.by(optimizer, torch.float64)
        if optimizer == "muon" and name.startswith("gpt"):
            continue  # whose matrices are [in][out] in PyTorch, and its scale asks which is which
        if optimizer.startswith("muon") and not hasattr(torch.optim, "Muon"):
            print("%s: skipped: this PyTorch has no torch.optim.Muon" % optimizer)
            continue
        words = ["--optimizer", optimizer.split("-")[0]]
        for key in keys.split():
            words += ["--set", "train." + key]
        if program:
            ours = case.by_ppcli(program, "%s/%s" % (scratch, optimizer), lr, *words)
        else:
            ours = case.by(optimizer, torch.float32)
        j.losses(ours[0], losses, optimizer + ": losses")
        if optimizer == "sgd":
            j.gradients(case.gradients(program, *words) if program else ours[1], gradients,
                        parity.TOLERANCE, 0)
            j.tensors("logits after %d steps" % parity.STEPS, case.logits(ours[2]),
                      case.logits(net))
    return j.bad


if __name__ == "__main__":
    sys.exit(parity.main(NEEDS, judge))
