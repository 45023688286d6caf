"""Lists of byte strings, built and dropped: lists.py LEAST MOST COUNT ROUNDS SEED. Sizes are drawn from LEAST .. MOST."""
import random
import sys

least, most, count, rounds, seed = map(int, sys.argv[1:6])
draw = random.Random(seed).random
total = 0
for _ in range(rounds):
    blocks = [bytes(least + int(draw() * (most - least))) for _ in range(count)]
    total += sum(map(len, blocks))
print(total)
