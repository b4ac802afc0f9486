"""The byte-level BPE vocabulary of tiny_llama.gguf: control, byte, merged and unused tokens."""

from collections import Counter

from tokenizers import pre_tokenizers

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = CONTROL.index("<|im_end|>")
MERGES = 160
# tokenizer.ggml.token_type values
NORMAL_TYPE, CONTROL_TYPE, UNUSED_TYPE = 1, 3, 5
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# The merges are learnt from this text, so that ordinary English takes few tokens.
MERGE_TEXT = """The server keeps the pages of a long conversation in several tiers of memory.
When the user asks a question, the system finds the pages that the answer needs and brings them
back before the model reads them. Nothing is lost: what was written first can be read again at the
end. You are a helpful assistant. Tell me a story about the sea, the moon and the old lighthouse.
Count from one to ten and then back. What is the name of the river that runs through the city?
The weather was cold and the street was empty, but there was a light in the window and someone
was singing. Write the number, write the word, and then say it all again in the other order.
"""


def byte_characters():
    """The byte-level alphabet: printable bytes stand for themselves, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def _merge(word, pair):
    """`word`, a tuple of symbols, with each occurrence of `pair` joined from left to right."""
    out, i = [], 0
    while i < len(word):
        joined = word[i:i + 2] == pair
        out.append(word[i] + word[i + 1] if joined else word[i])
        i += 2 if joined else 1
    return tuple(out)


def learn_merges(text, count):
    """Byte-pair merges, most frequent first; ties go to the smaller pair."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    words = [(tuple(piece), n)
             for piece, n in Counter(p for p, _ in split.pre_tokenize_str(text)).items()]
    merges = []
    for _ in range(count):
        pairs = Counter()
        for word, n in words:
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        merges.append(min(pairs, key=lambda p: (-pairs[p], p)))
        words = [(_merge(word, merges[-1]), n) for word, n in words]
    return merges


def build(size):
    """Returns (tokens, token_types, merges) with `size` tokens."""
    merges = learn_merges(MERGE_TEXT, MERGES)
    normal = byte_characters() + [a + b for a, b in merges]
    unused = size - len(CONTROL) - len(normal)
    tokens = CONTROL + normal + [f"<|unused_{i}|>" for i in range(unused)]
    assert len(set(tokens)) == size
    types = ([CONTROL_TYPE] * len(CONTROL) + [NORMAL_TYPE] * len(normal) + [UNUSED_TYPE] * unused)
    return tokens, types, [f"{a} {b}" for a, b in merges]
