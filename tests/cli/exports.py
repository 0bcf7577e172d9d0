#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other programs are the judges of what `ppcli export` writes for them:

    exports.py PPCLI SAMPLES gguf|onnx|torch

gguf: the package gguf reads every tensor and key back, and llama-cpp-python continues a text with the
same greedy tokens as `ppcli generate`, of a GPT-2 and of Llamas with all that they may have. onnx:
onnx.checker takes the file, and onnxruntime gives the logits of `ppcli eval` for any number of samples.
torch: model.py loads with strict=True and gives them too. SAMPLES: the folder data of the sources.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has the packages."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

sys.dont_write_bytecode = True
NEEDS = {"gguf": "import gguf, llama_cpp, numpy", "onnx": "import onnx, onnxruntime, numpy",
         "torch": "import torch, safetensors.torch, numpy"}
APART = 1e-5  # of logits, of the largest

CNN = ("conv:16x3 relu maxpool:2 conv:32x3 relu maxpool:2 flatten linear:128 relu linear:10")
# Every op: strides, "same", groups, norms, five activations, both pools, a residual.
ALL = ("conv:16x3 batchnorm relu conv:16x3,bias=off groupnorm:4 silu add:3 layernorm maxpool:3/2,pad=same "
       "conv:32x3/2,pad=same gelu conv:32x3,groups=4,bias=off batchnorm tanh maxpool:3/1,pad=1 avgpool:3/2,pad=same "
       "avgpool:2/1,pad=1 dropout:0.2 linear:40 gelu_tanh linear:10")
CIFAR = "dataset = cifar10-sample\npath = %s/cifar10-sample\n"
MNIST = "dataset = mnist-sample\n"
LABELS = "dataset = text-labels\ntrain_file = train.tsv\ntest_file = test.tsv\ntokens = bytes\n"
TEXT = "n_layer = 2\nn_head = 4\nn_embd = 32\nblock_size = 24\n"
# name: [data], [model]
NETS = {"mlp": (MNIST, "type = mlp\nsizes = 784 48 32 10\nactivation = gelu\n"),
        "mlp-channels": (CIFAR + "mean = 0.4914 0.4822 0.4465\nstd = 0.2023\n", "type = mlp\nsizes = 3072 32 10\n"),
        "mnist-conv": (MNIST + "mean = 0.1307\nstd = 0.3081\n", "type = sequential\nlayers = %s\n" % CNN),
        "all-ops": (CIFAR + "mean = 0.4914 0.4822 0.4465\nstd = 0.2023 0.1994 0.201\n",
                    "type = sequential\nlayers = %s\n" % ALL),
        "resnet18": (CIFAR, "type = resnet\ndepth = 18\nstem = cifar\n"),
        "resnet50-same": (CIFAR, "type = resnet\ndepth = 50\npadding = same\nnorm = group\n"),
        "encoder": (LABELS, "type = encoder\n" + TEXT),
        "encoder-first": (LABELS, "type = encoder\npooling = first\nffn_activation = gelu\n" + TEXT)}
LLAMA = "type = llama\nn_kv_head = 2\nn_hidden = 64\n" + TEXT.replace("n_head = 4", "n_head = 4")
TEXTS = {"gpt2": ("type = gpt\nn_hidden = 96\n" + TEXT, "f32"),
         "gpt2-nobias-untied": ("type = gpt\nbias = false\ntie_weights = off\n" + TEXT, "f32"),
         "llama": (LLAMA, "f32"),
         "llama3": (LLAMA + "rope_base = 100\nrope_scaling = 8 1 4 16\nhead_dim = 12\ntie_weights = on\n", "f32"),
         "llama-linear-bias": (LLAMA + "rope_scaling = 2.5\nattention_bias = all\n", "f32"),
         "qwen2": (LLAMA + "attention_bias = qkv\n", "f32"),
         "llama-f16": (LLAMA, "f16"), "gpt2-bf16": ("type = gpt\n" + TEXT, "bf16")}
SUBWORDS = {"subwords-gpt2": "gpt2", "subwords-llama2": "llama2", "subwords-llama3": "llama3", "subwords-qwen": "qwen"}
LINES = "to be, or not to be: that is the question.\nwhether \u00e9t\u00e9 or \u00fcber \u2603 it is nobler\n" * 60


class Run:
    """A short training in a folder of its own, which is the current one."""

    def __init__(self, ppcli, data, model, steps=6):
        self.ppcli = ppcli
        with open("x.ini", "w", encoding="ascii") as f:
            f.write("[data]\n%s[model]\n%s[pipeline]\nmicrobatches = 2\n[train]\nbatch_size = 12\nlr = 0.003\n"
                    % (data, model))
        self.says("train", "x.ini", "--dir", "run", "-q", "--max-steps", str(steps), "--stages", "2")

    def says(self, *words):
        p = subprocess.run([self.ppcli, *words], capture_output=True, text=True, check=False)
        if p.returncode != 0:
            sys.exit(f"ppcli {' '.join(words)}: exit {p.returncode}: {p.stderr}")
        return p.stdout

    def export(self, form, *words):
        return self.says("export", "run", form, "--format", form, *words)

    def logits(self, numpy):
        self.says("eval", "x.ini", "--checkpoint", "run", "--predictions", "p.csv", "-q")
        with open("p.csv", encoding="ascii") as f:
            rows = list(csv.DictReader(f))
        n = sum(k.startswith("logit") for k in rows[0])
        return numpy.array([[float(r["logit%d" % c]) for c in range(n)] for r in rows], "f4")


def near(what, ours, theirs):
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    apart, most = abs(ours - theirs).max(), max(1, abs(theirs).max())
    assert apart <= APART * most, f"{what}: logits {apart} of {most} apart"
    return "%s: logits at most %.1e of %.3g apart" % (what, apart, most)


def test_inputs(numpy, samples, name):
    """The test split as the exported model takes it."""
    if name.startswith("encoder"):
        rows = numpy.zeros((40, 24), "i8")
        with open("test.tsv", "rb") as f:
            for row, line in zip(rows, f):
                text = line.rstrip(b"\n").split(b"\t")[1][:24]
                row[:len(text)] = numpy.frombuffer(text, "u1") + 1
        return rows
    if NETS[name][0].startswith("dataset = mnist"):
        import gzip
        with gzip.open(samples + "/mnist-sample/t10k-images-idx3-ubyte.gz") as f:
            images = numpy.frombuffer(f.read()[16:], "u1").reshape(-1, 1, 28, 28)
    else:
        import gzip
        with gzip.open(samples + "/cifar10-sample/test_batch.bin.gz") as f:
            images = numpy.frombuffer(f.read(), "u1").reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32)
    images = images.astype("f4") / 255
    if name == "mlp-channels":  # as they lie in memory: row, column, channel
        images = images.transpose(0, 2, 3, 1)
    return images.reshape(len(images), -1) if name.startswith("mlp") else images


def write_labels():
    for part, n in (("train", 70), ("test", 40)):
        with open(part + ".tsv", "w", encoding="ascii") as f:
            for i in range(n):
                f.write("%d\t%s\n" % (i % 3, "".join(chr(97 + (7 * i + j * (i % 3 + 1)) % 26) for j in range(5 + i % 22))))


def judge_net(form, ppcli, samples, name):
    import numpy
    data, model = NETS[name]
    write_labels()
    run = Run(ppcli, data % samples if "%s" in data else data, model)
    said = run.export(form)
    assert "model." in said, said
    ours, x = run.logits(numpy), test_inputs(numpy, samples, name)
    if form == "torch":
        import torch
        spec = importlib.util.spec_from_file_location("model", "torch/model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with torch.no_grad():
            return near(name, module.load()(torch.from_numpy(x)).numpy(), ours)
    import onnx
    import onnxruntime
    graph = onnx.load("onnx/model.onnx")
    onnx.checker.check_model(graph, full_check=True)
    assert [o.version for o in graph.opset_import] == [17]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession("onnx/model.onnx", options, providers=["CPUExecutionProvider"])
    one = session.run(["logits"], {"input": x[:1]})[0]
    near(name, one, ours[:1])
    return near(name, session.run(["logits"], {"input": x})[0], ours)


def judge_text(ppcli, name):
    """Read back, and the same first 20 greedy tokens."""
    import gguf
    import llama_cpp
    import numpy
    model, dtype = TEXTS[name]
    with open("text.txt", "w", encoding="utf-8") as f:
        f.write(LINES)
    run = Run(ppcli, "dataset = text\ntrain_file = text.txt\n", model, 30)
    run.export("gguf", "--dtype", dtype)
    reader = gguf.GGUFReader("gguf/model.gguf")
    kinds = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
             "bf16": gguf.GGMLQuantizationType.BF16}
    assert all(t.tensor_type == (kinds[dtype] if len(t.shape) > 1 else kinds["f32"]) for t in reader.tensors)
    symbols = sorted(set(LINES))
    found = reader.get_field("tokenizer.ggml.tokens")
    assert len(found.data) == len(symbols)
    llm = llama_cpp.Llama("gguf/model.gguf", n_ctx=24, logits_all=True, verbose=False, n_threads=1, n_gpu_layers=0)
    prompt = "to \u00e9t"
    ids = llm.tokenize(prompt.encode(), add_bos=False)
    assert ids == [symbols.index(c) for c in prompt], ids
    text = run.says("generate", "run", "--prompt", prompt, "--tokens", "20", "--temperature", "0", "-q")
    ours = [symbols.index(c) for c in text[:24]]
    llm.eval(ids)
    apart = []
    while len(ids) < 24:
        row = numpy.array(llm.scores[len(ids) - 1])
        best = numpy.sort(row)[-2:]
        apart.append(float(best[1] - best[0]))
        token = int(row.argmax())
        ids.append(token)
        if token != ours[len(ids) - 1] and apart[-1] < (1e-4 if dtype == "f32" else 5e-2):
            ids[-1] = ours[len(ids) - 1]  # two that are as good
        assert ids[-1] == ours[len(ids) - 1], (name, ids, ours, apart)
        llm.eval(ids[-1:])
    return "%s, %s: the same 20 greedy tokens, %r" % (name, dtype, text[len(prompt):24])


def judge_subwords(ppcli, samples, name):
    """llama.cpp cuts texts into the same subwords, and continues one in the same way."""
    import llama_cpp
    with open(f"{samples}/../tests/golden/tokenizers/{SUBWORDS[name]}.json", encoding="utf-8") as f:
        golden = json.load(f)
    os.mkdir("vocabulary")
    with open("vocabulary/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(golden["tokenizer"], f)
    with open("text.txt", "w", encoding="utf-8") as f:
        f.write(LINES)
    subprocess.run([ppcli, "tokenize", "text.txt", "-o", "data", "--tokenizer", "vocabulary", "-q"],
                   check=True, capture_output=True)
    run = Run(ppcli, "dataset = tokens\npath = data\n", LLAMA, 30)
    run.export("gguf")
    llm = llama_cpp.Llama("gguf/model.gguf", n_ctx=256, logits_all=True, verbose=False, n_threads=1, n_gpu_layers=0)
    # llama.cpp neither normalises nor looks for added tokens here
    plain = [case for case in golden["cases"] if case[0] and "<" not in case[0]
             and unicodedata.normalize("NFC", case[0]) == case[0]]
    apart = [(text, ids, found) for text, ids in plain
             if (found := llm.tokenize(text.encode(), add_bos=False)) != ids]
    assert not apart, (name, len(plain), apart)
    text = run.says("generate", "run", "--prompt", "to be", "--tokens", "8", "--temperature", "0", "-q")
    theirs = llm("to be", max_tokens=8, temperature=0)["choices"][0]["text"]
    assert text.rstrip("\n") == ("to be" + theirs).rstrip("\n"), (name, text, theirs)
    return "%s: the ids of %d texts, and %r" % (name, len(plain), theirs)


def main():
    ppcli, samples, form = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    try:
        exec(NEEDS[form], {})  # pylint: disable=exec-used
    except ImportError as e:
        other = os.environ.pop("PPCLI_TEST_PYTHON", None)
        if not other:
            print(f"skipped: {e} (set PPCLI_TEST_PYTHON to an interpreter that has it)")
            sys.exit(77)
        os.execv(other, [other, *sys.argv])
    os.environ["PPCLI_DATA_DIR"] = samples
    names = sys.argv[4:] or ({**TEXTS, **SUBWORDS} if form == "gguf" else NETS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            print(judge_subwords(ppcli, samples, name) if name in SUBWORDS else judge_text(ppcli, name)
                  if form == "gguf" else judge_net(form, ppcli, samples, name), flush=True)
            os.chdir("/")


if __name__ == "__main__":
    main()
