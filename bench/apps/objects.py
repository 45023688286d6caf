"""Phases of objects with dictionaries and lists, of which a fifth stays each time: objects.py PHASES COUNT SEED."""
import random
import sys

phases, count, seed = map(int, sys.argv[1:4])
draw = random.Random(seed)


class Node:
    def __init__(self, key):
        self.table = {"key": key, "text": str(key) * (key % 7), "list": [key] * (key % 13)}
        self.content = bytes(key % 700)


live = {}
for phase in range(phases):
    for key in range(phase * 2 * count, phase * 2 * count + count):
        live[key] = Node(key)
    keys = list(live)
    draw.shuffle(keys)
    for key in keys[: len(keys) * 4 // 5]:
        del live[key]
print(len(live))
