"""Prompts that look like text, differ from their first words on, and have an exact number of tokens.

They are sent as token ids, so both servers read the same ones. The words become ids through llama-server's /tokenize;
both servers hold the same vocabulary, the one in the model file.
"""

import random

import streams

_SUBJECTS = ("the harbour", "a young engineer", "the old library", "our neighbour", "the river", "a small committee",
             "the morning train", "her brother", "the museum", "a group of students", "the baker", "the northern wind")
_VERBS = ("carried", "described", "repaired", "followed", "measured", "remembered", "painted", "crossed", "discussed",
          "collected", "explained", "opened")
_OBJECTS = ("the wooden bridge", "a list of unusual plants", "the second chapter", "several letters from abroad",
            "a narrow street near the market", "the results of the survey", "an instrument made of brass",
            "the plan for the coming winter", "a map of the islands", "three boxes of glass")
_ENDINGS = ("before the rain began", "without any hurry", "while everybody else was asleep",
            "for the first time in years", "as the town council had asked", "although nobody believed it",
            "on the way to the station", "and wrote everything down")


class PromptMaker:
    def __init__(self, tokenizer_port, seed):
        self._port = tokenizer_port
        self._random = random.Random(seed)
        self._made = 0

    def tokens(self, count):
        """A new prompt of `count` token ids."""
        text, ids = self._opening(), []
        while len(ids) < count:
            # A sentence has at least 8 tokens.
            text += "".join(self._sentence() for _ in range((count - len(ids)) // 8 + 1))
            ids = self._tokenize(text)
        return ids[:count]

    def question(self):
        """A short chat message, of about 30 tokens with its chat template's own left out."""
        return f"{self._opening()}Tell me in two sentences why{self._sentence().lower().rstrip('.')}?"

    def _opening(self):
        # The very first words are unlike those of every other prompt of this run.
        self._made += 1
        return f"{self._random.choice('ABCDEFGHIJKLMNOPQRSTUVWXYZ')}{self._made} is the number of this note."

    def _sentence(self):
        pick = self._random.choice
        return f" {pick(_SUBJECTS).capitalize()} {pick(_VERBS)} {pick(_OBJECTS)} {pick(_ENDINGS)}."

    def _tokenize(self, text):
        status, answer = streams.get(self._port, "/tokenize", {"content": text, "add_special": False})
        if status != 200:
            raise streams.RequestFailed(f"/tokenize answered {status}: {answer}")
        return answer["tokens"]
