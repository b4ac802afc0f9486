"""Texts of the SmolLM2 teacher-forcing fixture, written for this project."""

STORY = """The ferry had stopped running in October, so Marta rowed across the bay herself, with the
letters wrapped in oilcloth under the seat. Halfway over, the fog closed in and the shore behind
her vanished. She lifted the oars and listened. Somewhere to the left a bell was ringing, slow and
uneven, as if a child were pulling the rope. "That is not the chapel," she said aloud, because the
chapel had lost its bell in the war. She turned the boat toward the sound anyway. By the time the
keel touched sand the ringing had ceased, and an old man stood on the beach with a lantern. "You
are late," he told her. "We have been waiting for that letter for eleven years."
"""

CODE = '''def merge_intervals(intervals):
    """Joins overlapping [start, end) intervals and returns them sorted."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


class RingBuffer:
    def __init__(self, capacity):
        self.items = [None] * capacity
        self.head = 0
        self.size = 0

    def push(self, item):
        self.items[(self.head + self.size) % len(self.items)] = item
        self.size += 1
'''

DIALOGUE = [
    {"role": "system", "content": "You answer in one or two short sentences."},
    {"role": "user", "content": "Why does bread rise when it is baked?"},
    {"role": "assistant",
     "content": "Yeast eats the sugar in the dough and gives off carbon dioxide. "
                "The gas is caught in the gluten, so the dough swells before the crust sets."},
    {"role": "user", "content": "And what happens if I leave out the salt?"},
    {"role": "assistant",
     "content": "The dough rises faster, because salt slows the yeast down, "
                "and the loaf tastes flat."},
    {"role": "user", "content": "Give me a simple recipe for two small loaves."},
]

TABLE = """| station | 2021 | 2022 | 2023 | change |
|---------|-----:|-----:|-----:|-------:|
| North   | 1204 | 1377 | 1410 |  +2.4% |
| Harbour |  873 |  901 |  889 |  -1.3% |
| Mill    |   96 |  128 |  160 | +25.0% |
| Total   | 2173 | 2406 | 2459 |  +2.2% |

Primes below 40: 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37. Pi is about 3.14159265.
"""

MULTILINGUAL = """Good morning! Guten Morgen, wie geht es Ihnen heute? Bonjour, je voudrais un café
s'il vous plaît. ¿Dónde está la estación de tren? Il treno parte alle sette e un quarto.
Доброе утро, сегодня идёт снег. Καλημέρα κόσμε. 今日は良い天気ですね。你好，世界。 안녕하세요. 🙂
"""
