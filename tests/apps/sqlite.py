"""sqlite3: tables, indices, joins, aggregates, a transaction rolled back, vacuum and a dump."""
import hashlib
import tempfile

import app

SCRIPT = """
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, town INTEGER, note BLOB);
CREATE TABLE town(id INTEGER PRIMARY KEY, name TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
  INSERT INTO town SELECT i, 'town ' || (i * 7919 % 1000) FROM n;
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
  INSERT INTO person SELECT i, 'name ' || (i * 104729 % 99991), i % 200 + 1, zeroblob(i % 300) FROM n;
COMMIT;
CREATE INDEX person_name ON person(name);
BEGIN; DELETE FROM person WHERE id % 3 = 0; ROLLBACK;
SELECT town.name, count(*), sum(length(note)), group_concat(person.id % 10, '')
  FROM person JOIN town ON town.id = person.town GROUP BY town.id ORDER BY town.name, town.id;
DELETE FROM person WHERE id % 2 = 0;
UPDATE person SET note = upper(name) || note WHERE id % 5 = 0;
SELECT a.name, b.name FROM person a JOIN person b ON b.name = a.name AND b.id > a.id ORDER BY 1, a.id LIMIT 500;
WITH RECURSIVE f(n, a, b) AS (SELECT 1, 0, 1 UNION ALL SELECT n + 1, b, a + b FROM f WHERE n < 60) SELECT max(a) FROM f;
VACUUM;
PRAGMA integrity_check;
.dump
"""


def test():
    app.need("sqlite3")
    outputs = []
    for place in (":memory:", "file"):
        with tempfile.TemporaryDirectory() as folder:
            # The file is removed by itself between the two runs: the script creates the tables.
            script = SCRIPT.encode()
            command = ["/bin/sh", "-c", 'rm -f file; exec sqlite3 "$0"', place]
            outputs.append(app.same(command, 1 << 20, cwd=folder, stdin=script))
    app.check(outputs[0] == outputs[1] and b"ok\n" in outputs[0], "the database in memory differs from the one in a file")
    return f"sqlite3: ok ({hashlib.sha256(outputs[0]).hexdigest()[:12]})"


if __name__ == "__main__":
    app.main(test)
