#!/usr/bin/env python3
"""Writes tests/recall/previous_token_weights.h: how much each rotary frequency weighs in the previous-token head.

The head's score of a key that lies D tokens back is s(D) = sum of a_f cos(theta_f (D - 1)), with a_f >= 0 and sum 1, so
s(1) = 1. The weights maximise the gap, min over D in [0, 2^20], D != 1, of 1 - s(D): a matrix game, solved by
multiplicative weights over a small set of distances that grows by the worst ones of each full scan (cutting planes).

Usage: make_previous_token_weights.py > previous_token_weights.h       (needs NumPy; seconds)
"""

import numpy as np

THETA = 1e13
PAIRS = 64
LONGEST = (1 << 20) + 256
ROUNDS = 24  # full scans
TURNS = 6000  # of the game in each
CUTS = 16  # distances that a scan adds


def gaps(weights, frequencies):
    """[distance] 1 - s(distance), with the wanted one at infinity."""
    distances = np.arange(LONGEST + 1, dtype=float) - 1.0
    score = np.zeros(len(distances))
    for weight, frequency in zip(weights, frequencies):
        if weight > 0:
            score += weight * np.cos(frequency * distances)
    score[1] = -np.inf
    return 1.0 - score


def play(active, frequencies):
    """Both players of the game by multiplicative weights; the average of the maximiser's turns."""
    payoff = 1.0 - np.cos(np.outer(np.array(active) - 1.0, frequencies))  # [distances, frequencies]
    rows = np.ones(len(active)) / len(active)
    columns = np.ones(len(frequencies)) / len(frequencies)
    total = np.zeros(len(frequencies))
    for turn in range(TURNS):
        rate = 2.0 / np.sqrt(turn + 10)
        rows *= np.exp(-rate * (payoff @ columns))
        rows /= rows.sum()
        columns *= np.exp(rate * (rows @ payoff))
        columns /= columns.sum()
        total += columns
    return total / total.sum()


def main():
    frequencies = THETA ** (-np.arange(PAIRS) / PAIRS)
    active = [0, 2, 3, 4, 5, 6]
    best_gap, best = -1.0, None
    for _ in range(ROUNDS):
        weights = play(active, frequencies)
        weights[weights < 1e-6] = 0.0
        weights = np.round(weights / weights.sum(), 9)
        gap = gaps(weights, frequencies)
        if gap.min() > best_gap:
            best_gap, best = gap.min(), weights
        worst = [int(d) for d in np.argsort(gap)[:CUTS] if int(d) not in active]
        if not worst:
            break
        active += worst
    print("// Made by make_previous_token_weights.py, which says what these are. Smallest gap: %.4f." % best_gap)
    print("#pragma once\n\n#include <array>\n\nnamespace hisparse::test {\n")
    print("inline constexpr double kPreviousTokenTheta = 1e13;")
    print("inline constexpr double kPreviousTokenGap = %.4f;" % (np.floor(best_gap * 1e4) / 1e4))
    print("inline constexpr std::array<double, %d> kPreviousTokenWeights = {" % PAIRS)
    for begin in range(0, PAIRS, 7):
        print("    " + " ".join("%.9f," % weight for weight in best[begin:begin + 7]))
    print("};\n\n}  // namespace hisparse::test")


if __name__ == "__main__":
    main()
