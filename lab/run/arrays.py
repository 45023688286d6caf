"""Array work as programs with numpy do it: temporaries of many sizes, each made, used once and dropped, and pauses.

python3 arrays.py ROUNDS
"""

import sys
import time

import numpy

SIDES = (300, 420, 600, 850, 1200, 1700)  # of square images: 700 KiB to 22 MiB of doubles
PAUSE_S = 0.05


def smoothed(image: numpy.ndarray) -> numpy.ndarray:
    return (image[:-2] + 2 * image[1:-1] + image[2:]) / 4


def contrast(image: numpy.ndarray) -> float:
    edges = numpy.sqrt(numpy.gradient(image, axis=0) ** 2 + numpy.gradient(image, axis=1) ** 2)
    return float(edges[edges > edges.mean()].sum())


def work(rounds: int) -> float:
    random, total = numpy.random.default_rng(1), 0.0
    for i in range(rounds):
        image = random.random((SIDES[i % len(SIDES)],) * 2)
        total += contrast(smoothed(image))
        if i % len(SIDES) == 0:
            time.sleep(PAUSE_S)
    return total


if __name__ == "__main__":
    work(int(sys.argv[1]))
