#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's transformers is the judge of models that come from there and go there:

    huggingface.py PPCLI

Small random GPT2LMHeadModel (tied, untied, bf16), GPT2Model, LlamaForCausalLM (grouped heads of keys
and values, several files, tied, scaled angles, biases, wide heads), Qwen2ForCausalLM, MistralForCausalLM,
and names with the prefixes of wrappers: the logits of `ppcli eval` on their files, greedy texts of `ppcli
generate`, and every bit of a trip through train.init and `ppcli export`.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has torch and transformers."""

import csv
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
NEEDS = "import torch, transformers, safetensors.torch"
APART = 1e-5  # of logits, of the largest one
WINDOWS = 3


def models(torch, transformers):
    """Name, model, words for save_pretrained()."""
    none = {"bos_token_id": None, "eos_token_id": None}

    def gpt(**more):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=2, n_head=4, n_embd=32, n_positions=16, vocab_size=65, **none, **more))

    def llama(kind="Llama", width=48, **more):
        return getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(
            hidden_size=width, intermediate_size=100, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=24, vocab_size=99, **none, **more))

    llama3 = {"rope_type": "llama3", "rope_theta": 20.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}

    return [("gpt2", gpt(), {}),
            ("gpt2-untied", gpt(tie_word_embeddings=False, activation_function="gelu", n_inner=48,
                                layer_norm_epsilon=1.0), {}),
            ("gpt2-bf16", gpt().to(torch.bfloat16), {}),
            ("llama", llama(), {"max_shard_size": "60KB"}),
            ("llama-tied", llama(tie_word_embeddings=True, rope_theta=500.0), {}),
            ("llama3", llama(rope_parameters=llama3, tie_word_embeddings=True), {}),
            ("linear", llama(rope_parameters=linear), {}),
            ("llama-bias", llama(attention_bias=True), {}),
            ("llama-wide-heads", llama(head_dim=12), {}),
            ("llama-prefix", llama(), {}),
            ("gpt2-bare", gpt(), {}),
            ("qwen2", llama("Qwen2", tie_word_embeddings=True), {}),
            ("mistral", llama("Mistral", head_dim=10, sliding_window=None), {}),
            ("mistral-odd-width", llama("Mistral", 50, head_dim=10, sliding_window=None), {}),
            ("mistral-window", llama("Mistral", sliding_window=24), {})]


def shake(torch, model):
    """Away from initial values, among which biases are 0 and scales 1."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))


def add_older_words(folder):
    """What another version wrote beside today's words, and is passed over: by theirs and by ours."""
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config["rope_theta"] = 2 * config["rope_parameters"]["rope_theta"]
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


def write_otherwise(folder, name, model):
    """The same model as others leave it: without a head and a name, wrapped twice."""
    import safetensors.torch
    path = f"{folder}/model.safetensors"
    if name == "gpt2-bare":
        model.transformer.save_pretrained(folder)
        with open(f"{folder}/config.json", encoding="utf-8") as f:
            config = json.load(f)
        assert config.pop("architectures") == ["GPT2Model"]
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
    if name == "llama-prefix":
        tensors = {f"module._orig_mod.{k}": v for k, v in safetensors.torch.load_file(path).items()}
        safetensors.torch.save_file(tensors, path)


def says(ppcli, *words):
    p = subprocess.run([ppcli, *words], capture_output=True, text=True, check=False)
    if p.returncode != 0:
        sys.exit(f"ppcli {' '.join(words)}: exit {p.returncode}: {p.stderr}")
    return p.stdout


def write_data(torch, folder, vocabulary, positions):
    """Tokens for training and validation; the windows of the latter."""
    import numpy
    tokens = torch.randint(0, vocabulary, (WINDOWS * positions + 1,))
    for name in ("train", "val"):
        tokens.numpy().astype(numpy.uint16).tofile(f"{folder}/{name}.bin")
    return tokens[:-1].view(WINDOWS, positions)


def logits_of(path, columns):
    with open(path, encoding="ascii") as f:
        rows = list(csv.DictReader(f))
    return [[float(row[f"logit{c}"]) for c in range(columns)] for row in rows]


def judge_logits(torch, ppcli, ini, folder, model, windows):
    says(ppcli, "eval", ini, "--checkpoint", f"{folder}/hf", "--predictions", f"{folder}/p.csv", "-q")
    with torch.no_grad():
        theirs = model.float()(windows).logits.reshape(-1, model.config.vocab_size)
    ours = torch.tensor(logits_of(f"{folder}/p.csv", model.config.vocab_size))
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    apart = (ours - theirs).abs().max().item()
    most = theirs.abs().max().item()
    assert apart < APART * max(1, most), f"logits {apart} of {most} apart"
    return apart


def judge_text(torch, ppcli, ini, folder, model, windows):
    """Greedy, until the context is full; only where the two best are not nearly equal."""
    text = windows[0, :3].unsqueeze(0)
    n = windows.shape[1] - 3
    words = says(ppcli, "generate", ini, "--checkpoint", f"{folder}/hf", "--prompt",
                 " ".join(str(t) for t in text[0].tolist()), "--tokens", str(n), "--temperature", "0", "-q")
    ours = [int(t) for t in words.split()]
    assert len(ours) == n + 3, words
    for i in range(n):
        with torch.no_grad():
            last = model(text).logits[0, -1]
        best = last.topk(2)
        if best.values[0] - best.values[1] > APART:
            assert ours[i + 3] == best.indices[0], (ours, i, best)
        text = torch.tensor([ours[:i + 4]])


def judge_trip(torch, transformers, ppcli, ini, folder, model):
    """A step that changes nothing, a checkpoint of two stages, an export: every bit."""
    says(ppcli, "train", ini, "--set", f"train.init={folder}/hf", "--dir", f"{folder}/run", "--stages", "2",
         "--max-steps", "1", "--optimizer", "sgd", "--lr", "0", "-q")
    says(ppcli, "export", f"{folder}/run", f"{folder}/back")
    back, info = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/back", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    divides = model.config.hidden_size % model.config.num_attention_heads == 0  # a Llama's must
    same_class = type(model).__name__.replace("Mistral", "Llama" if divides else "Mistral")
    assert type(back).__name__ == same_class, type(back)
    ours, theirs = back.state_dict(), model.float().state_dict()
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name in theirs:
        assert torch.equal(ours[name].view(torch.int32), theirs[name].view(torch.int32)), name
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
            "tie_word_embeddings")
    for key in same + (("activation_function",) if model.config.model_type == "gpt2" else ("rope_parameters",)):
        assert getattr(back.config, key) == getattr(model.config, key), key


def main():
    try:
        exec(NEEDS, {})  # pylint: disable=exec-used
    except ImportError as e:
        other = os.environ.pop("PPCLI_TEST_PYTHON", None)
        if not other:
            print(f"skipped: {e} (set PPCLI_TEST_PYTHON to an interpreter that has it)")
            sys.exit(77)
        os.execv(other, [other, *sys.argv])
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    ppcli = os.path.abspath(sys.argv[1])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for name, model, words in models(torch, transformers):
        shake(torch, model)
        model.eval()
        positions = model.config.max_position_embeddings
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/hf", **words)
            if name == "llama-tied":
                add_older_words(f"{folder}/hf")
                model = type(model).from_pretrained(f"{folder}/hf").eval()
            write_otherwise(f"{folder}/hf", name, model)
            windows = write_data(torch, folder, model.config.vocab_size, positions)
            ini = f"{folder}/x.ini"
            with open(ini, "w", encoding="ascii") as f:
                f.write(f"[data]\ndataset = tokens\npath = {folder}\n[model]\nfrom = {folder}/hf\n"
                        "[train]\nbatch_size = 4\n")
            apart = judge_logits(torch, ppcli, ini, folder, model, windows)
            judge_text(torch, ppcli, ini, folder, model, windows)
            judge_trip(torch, transformers, ppcli, ini, folder, model)
            files = len([f for f in os.listdir(f"{folder}/hf") if f.endswith(".safetensors")])
            print(f"{name}, {files} file{'s' if files > 1 else ''}: logits at most {apart:.1e} apart, same texts, "
                  "every bit there and back")


if __name__ == "__main__":
    main()
