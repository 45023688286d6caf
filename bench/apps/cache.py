"""The client of memcached: cache.py SOCKET ROUNDS. Sets, gets and deletes with drawn sizes over several connections;
each round has new ones. Prints what was found."""
import os
import random
import socket
import sys
import time

CONNECTIONS, SETS, KEYS, MOST = 20, 250, 20000, 8000
path, rounds = sys.argv[1], int(sys.argv[2])
draw = random.Random(1).random
text = b"some words of a value " * (MOST // 20)
found = 0
until = time.monotonic() + 60
while not os.path.exists(path) and time.monotonic() < until:
    time.sleep(0.01)


def ask(connection, commands):
    """Sends them and reads up to the answer of the last one."""
    connection.sendall(b"".join(commands) + b"mn\r\n")
    answer = b""
    while not answer.endswith(b"MN\r\n"):
        answer += connection.recv(1 << 16)
    return answer


for _ in range(rounds):
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connections.append(connection)
        commands = []
        for _ in range(SETS):
            size = int(draw() ** 3 * MOST)
            commands.append(b"set k%d 0 0 %d noreply\r\n%b\r\n" % (draw() * KEYS, size, text[:size]))
        commands += [b"delete k%d noreply\r\n" % (draw() * KEYS) for _ in range(SETS // 5)]
        commands += [b"mg k%d s v\r\n" % (draw() * KEYS) for _ in range(SETS // 5)]
        found += len(ask(connection, commands))
    for connection in connections:
        connection.close()
print(found)
