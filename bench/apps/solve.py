"""Writes a problem for z3: products of bit vectors, and integers with differences and alternatives."""
import random

draw = random.Random(3)
say = print
integers = [f"x{i}" for i in range(40)]
vectors = [f"b{i}" for i in range(8)]
for name in integers:
    say(f"(declare-const {name} Int) (assert (and (>= {name} 0) (< {name} 60)))")
say(f"(assert (distinct {' '.join(integers[:15])}))")
for _ in range(60):
    a, b, c = draw.sample(integers, 3)
    say(f"(assert (not (= (- (+ {a} (* 2 {b})) {c}) {draw.randrange(80)})))")
    a, b = draw.sample(integers, 2)
    say(f"(assert (or (< {a} (+ {b} {draw.randrange(9)})) (> (* 3 {b}) {a})))")
say("(check-sat) (reset)")
for name in vectors:
    say(f"(declare-const {name} (_ BitVec 28))")
for a, b in zip(vectors, vectors[1:], strict=False):
    say(f"(assert (= (bvor (bvmul {a} {b}) #x0000001) #x{draw.getrandbits(28) | 1:07x}))")
say("(check-sat)")
