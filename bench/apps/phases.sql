-- A database in memory: small rows and an index, then long rows, then neither.
PRAGMA journal_mode=MEMORY; PRAGMA cache_size=-100000;
CREATE TABLE word(id INTEGER PRIMARY KEY, name TEXT, kind INTEGER, note BLOB);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
  INSERT INTO word SELECT i, 'name ' || (i * 104729 % 99991), i % 200, zeroblob(i % 60) FROM n;
COMMIT;
CREATE INDEX word_name ON word(name);
SELECT count(*), sum(bytes) FROM (SELECT kind, length(group_concat(name)) bytes FROM word GROUP BY kind);
SELECT count(*) FROM (SELECT DISTINCT name, kind FROM word);
DELETE FROM word WHERE id % 3 = 0;
CREATE TABLE page(id INTEGER PRIMARY KEY, note BLOB);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
  INSERT INTO page SELECT i, zeroblob(3000 + i * 37 % 5000) FROM n;
COMMIT;
SELECT max(length(names)) FROM (SELECT group_concat(name) names FROM word GROUP BY kind % 10);
DELETE FROM page WHERE id % 2 = 0;
UPDATE word SET name = name || 'xx' WHERE id % 5 = 0;
DROP TABLE page;
SELECT count(*) FROM (SELECT a.name, b.kind FROM word a JOIN word b ON a.id = b.kind ORDER BY a.name);
VACUUM;
SELECT count(*), sum(length(name)) FROM word;
