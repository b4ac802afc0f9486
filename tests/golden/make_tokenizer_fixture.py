#!/usr/bin/env python3
"""Writes tests/golden/data/tiny_bpe.json and smollm2_tokens.json: token ids by Hugging Face tokenizers.

Usage: make_tokenizer_fixture.py OUTPUT_FOLDER SMOLLM2_GGUF
Needs the Python packages tokenizers and gguf. The output is deterministic.
"""

import json
import pathlib
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

CONTROL, USER_DEFINED, NORMAL = 3, 4, 1
TINY_SPECIALS = [("<|end|>", CONTROL), ("<|endless|>", CONTROL), ("<|start|>", CONTROL),
                 ("<tool>", USER_DEFINED), ("  -- ", USER_DEFINED)]
TINY_VOCABULARY = 600

# Training text of the tiny vocabulary: what the cases below are made of, so that merges are exercised.
TRAINING = [
    "The quick brown fox jumps over the lazy dog, and then it's back again before they've seen it.",
    "We'll say that he'd rather not; I'm sure you're right, but she can't and won't.",
    "for (int i = 0; i < count; ++i) { values[i] = values[i] * 2 + offset; }",
    "def encode(self, text):\n    return [self.table[piece] for piece in text.split()]\n",
    "    if x is None:\n        raise ValueError('nothing')\n\n\n",
    "你好世界，今天天气很好。東京の朝は静かです。안녕하세요 세계",
    "Größe, naïve café, señor, Ελληνικά, русский текст и ещё немного текста",
    "aaaaaaaaaaaaaaaa bbbbbbbbbbbb abababababababab",
    "...... ------ ====== !!! ??? /* comment */ // comment",
]

CASES = [
    "", " ", "  ", "a", " a", "  a", "a ", "a  ", "\n", "\n\n", " \n", "\n ", "\t", "\t\tx", "\r\n", "a\r\nb",
    "Hello, world!", "The quick brown fox jumps over the lazy dog.", "it's we've I'm you'll he'd they're can't",
    "IT'S 'S 'T '' ' 're'llx", "x 's", "'s", "' s", "don''t", "0", "2024", " 2024", "  2024", "1,234.56", "v1.2.3-rc4",
    "a1b22c333", "1 2  3   4", "for (int i = 0; i < 10; ++i) { a[i] += i*2; }",
    "def f(x):\n    if x:\n        return x\n\n\n\treturn None\n", "trailing spaces   ", "   leading", "a     b",
    "line one\n\n\n  line two\n", " \t \n \t ", "x\n  y", "x  \ny", "a\u00a0b", "\u00a0\u00a0a", "a\u3000b", "\u3000",
    "a\u180eb", "\u180e \u180e", "a\u0085b", "\u2003\u2003x", "\u2028\u2029", "\u200b\u200b", "\ufeffbom",
    "你好世界", "今天 天气 很好。", "東京の朝は静かです", "안녕하세요 세계", "你好 world 123", "😀", "😀😃 👍🏽", "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷",
    "e\u0301 cafe\u0301", "\u0301", "a\u0308\u0304b", "नमस्ते दुनिया", "ภาษาไทย", "שלום עולם", "مرحبا بالعالم",
    "\u0661\u0662\u0663", "a\u0661\u0662 b", "½ ² ③ Ⅳ 〇", "१२३", "\u202eabc\u202c", "x²+y²=z²", "Größe Straße ﬁne",
    "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|><|im_end|><|endoftext|>", "a<|im_end|>b", " <|im_end|> ",
    "<|im_end", "<|im_end|", "<<|im_end|>>", "<|end|>", "<|endless|>", "<|end|><|endless|><|start|>", "<|endles|>",
    "  <|end|>  <|start|> x", "<tool>call</tool>", "a  --  b", "a  -- b  -- c", "<|<|end|>|>",
    "\x00\x01\x7f", "tab\there", "~!@#$%^&*()_+", "...!!!???", "http://example.org/a?b=c&d=%20", "\U0001d4d0\U0001d4d1",
    "\ue000\uf8ff", "\U000e0041", "\U0010ffff", "snake_case CamelCase kebab-case", "ÀÉÎõü ÿ", "\u00ad soft",
    "'\u017fx", "mixedالعربيةtext", "  \n  \n  x", "\n\n\nx\n\n", "a\x0bb\x0cc", "ABABABAB", "abababababab",
]
# (unit, count): long runs must not take quadratic time, nor end differently.
RUNS = [("a", 20000), (" ", 4000), ("ab", 3000), ("\n", 2000), ("好", 2000), ("=", 3000)]


def pre_tokenizer(pre):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "gpt-2":
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


def build(tokens, types, merges, pre):
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    for token, kind in zip(tokens, types):
        added = AddedToken(token, normalized=False, special=kind == CONTROL)
        if kind == CONTROL:
            tokenizer.add_special_tokens([added])
        elif kind == USER_DEFINED:
            tokenizer.add_tokens([added])
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def cases(tokenizer):
    plain = [{"text": text, "ids": encode(tokenizer, text)} for text in CASES]
    runs = [{"unit": unit, "count": count, "ids": encode(tokenizer, unit * count)} for unit, count in RUNS]
    return plain + runs


def tiny():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer("smollm")
    trainer = trainers.BpeTrainer(vocab_size=TINY_VOCABULARY - len(TINY_SPECIALS), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TRAINING, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    types = [NORMAL] * len(tokens)
    for token, kind in TINY_SPECIALS:
        tokens.append(token)
        types.append(kind)
    merges = [" ".join(pair) for pair in model["merges"]]
    expected = {pre: cases(build(tokens, types, merges, pre)) for pre in ("smollm", "gpt-2")}
    return {"tokens": tokens, "token_type": types, "merges": merges, "cases": expected}


def smollm2(path):
    fields = GGUFReader(path).fields
    get = lambda name: fields["tokenizer.ggml." + name].contents()
    assert get("pre") == "smollm"
    return {"cases": cases(build(get("tokens"), get("token_type"), get("merges"), "smollm"))}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


def main():
    folder = pathlib.Path(sys.argv[1])
    write(folder / "tiny_bpe.json", tiny())
    write(folder / "smollm2_tokens.json", smollm2(sys.argv[2]))


if __name__ == "__main__":
    main()
