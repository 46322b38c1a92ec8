-- The points of metrics, packed: a third of the bytes, and a tenth of the rows to write.

ALTER TABLE metrics RENAME TO metrics_as_rows;
ALTER TABLE superseded_metrics RENAME TO superseded_as_rows;
ALTER TABLE metric_summaries RENAME TO summaries_with_names;

CREATE TABLE metric_names (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);

-- One row a metric of a run, kept with every batch, so that listing thousands of runs
-- does not read millions of points.
CREATE TABLE run_metrics (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  metric INTEGER NOT NULL REFERENCES metric_names (id),
  first  REAL,                       -- NULL is NaN
  last   REAL,                       -- the value recorded last
  min    REAL,                       -- NaN left out; NULL: nothing else
  max    REAL,
  count  INTEGER NOT NULL,
  PRIMARY KEY (run, metric)
) WITHOUT ROWID;

-- Up to 32 points in a row. Slot k has the point with the number seq + k: its value is in vk; pk has all else, as
-- exact + 2 * (metric + metrics * (rank + ranks * (step + steps * time))),
-- where metric, rank, step and time are counted from the smallest of the row, which the columns of
-- these names hold; metrics, ranks and steps are how many there are from the smallest to the largest.
-- pk is NULL where there is no point.
CREATE TABLE metric_blocks (
  run        INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  superseded INTEGER NOT NULL,       -- 1: by points that a later attempt recorded again, or would have
  seq        INTEGER NOT NULL,
  metric     INTEGER NOT NULL,
  metrics    INTEGER NOT NULL,
  rank       INTEGER NOT NULL,
  ranks      INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  steps      INTEGER NOT NULL,
  time       INTEGER NOT NULL,       -- microseconds since 1970
  bits       TEXT,                   -- JSON, by slot: the IEEE 754 bits where the value cannot tell them, NaN and -0.0
  p0 INTEGER, p1 INTEGER, p2 INTEGER, p3 INTEGER, p4 INTEGER, p5 INTEGER, p6 INTEGER, p7 INTEGER,
  p8 INTEGER, p9 INTEGER, p10 INTEGER, p11 INTEGER, p12 INTEGER, p13 INTEGER, p14 INTEGER, p15 INTEGER,
  p16 INTEGER, p17 INTEGER, p18 INTEGER, p19 INTEGER, p20 INTEGER, p21 INTEGER, p22 INTEGER, p23 INTEGER,
  p24 INTEGER, p25 INTEGER, p26 INTEGER, p27 INTEGER, p28 INTEGER, p29 INTEGER, p30 INTEGER, p31 INTEGER,
  v0 REAL, v1 REAL, v2 REAL, v3 REAL, v4 REAL, v5 REAL, v6 REAL, v7 REAL,
  v8 REAL, v9 REAL, v10 REAL, v11 REAL, v12 REAL, v13 REAL, v14 REAL, v15 REAL,
  v16 REAL, v17 REAL, v18 REAL, v19 REAL, v20 REAL, v21 REAL, v22 REAL, v23 REAL,
  v24 REAL, v25 REAL, v26 REAL, v27 REAL, v28 REAL, v29 REAL, v30 REAL, v31 REAL,
  PRIMARY KEY (run, superseded, seq)
) WITHOUT ROWID;

-- The points, one in a row.
CREATE VIEW points AS
SELECT b.run, b.superseded, b.seq + slot AS seq, n.name, b.step + p / 2 / metrics / ranks % steps AS step, b.rank + p / 2 / metrics % ranks AS rank,
  value, CASE WHEN b.bits IS NOT NULL THEN json_extract(b.bits, '$."' || slot || '"') END AS bits, p % 2 AS exact,
  strftime('%Y-%m-%dT%H:%M:%S', (b.time + p / 2 / metrics / ranks / steps) / 1000000, 'unixepoch') ||
    printf('.%06dZ', (b.time + p / 2 / metrics / ranks / steps) % 1000000) AS time
FROM (SELECT *,
    CASE slot
      WHEN 0 THEN p0 WHEN 1 THEN p1 WHEN 2 THEN p2 WHEN 3 THEN p3 WHEN 4 THEN p4 WHEN 5 THEN p5 WHEN 6 THEN p6 WHEN 7 THEN p7
      WHEN 8 THEN p8 WHEN 9 THEN p9 WHEN 10 THEN p10 WHEN 11 THEN p11 WHEN 12 THEN p12 WHEN 13 THEN p13 WHEN 14 THEN p14 WHEN 15 THEN p15
      WHEN 16 THEN p16 WHEN 17 THEN p17 WHEN 18 THEN p18 WHEN 19 THEN p19 WHEN 20 THEN p20 WHEN 21 THEN p21 WHEN 22 THEN p22 WHEN 23 THEN p23
      WHEN 24 THEN p24 WHEN 25 THEN p25 WHEN 26 THEN p26 WHEN 27 THEN p27 WHEN 28 THEN p28 WHEN 29 THEN p29 WHEN 30 THEN p30 WHEN 31 THEN p31 END AS p,
    CASE slot
      WHEN 0 THEN v0 WHEN 1 THEN v1 WHEN 2 THEN v2 WHEN 3 THEN v3 WHEN 4 THEN v4 WHEN 5 THEN v5 WHEN 6 THEN v6 WHEN 7 THEN v7
      WHEN 8 THEN v8 WHEN 9 THEN v9 WHEN 10 THEN v10 WHEN 11 THEN v11 WHEN 12 THEN v12 WHEN 13 THEN v13 WHEN 14 THEN v14 WHEN 15 THEN v15
      WHEN 16 THEN v16 WHEN 17 THEN v17 WHEN 18 THEN v18 WHEN 19 THEN v19 WHEN 20 THEN v20 WHEN 21 THEN v21 WHEN 22 THEN v22 WHEN 23 THEN v23
      WHEN 24 THEN v24 WHEN 25 THEN v25 WHEN 26 THEN v26 WHEN 27 THEN v27 WHEN 28 THEN v28 WHEN 29 THEN v29 WHEN 30 THEN v30 WHEN 31 THEN v31 END AS value
  FROM metric_blocks CROSS JOIN (SELECT value AS slot FROM json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31]'))) b
CROSS JOIN metric_names n ON n.id = b.metric + p / 2 % metrics
WHERE p IS NOT NULL;

CREATE VIEW metrics AS SELECT run, seq, name, step, rank, value, bits, exact, time FROM points WHERE superseded = 0;
CREATE VIEW superseded_metrics AS SELECT run, seq, name, step, rank, value, bits, exact, time FROM points WHERE superseded = 1;
CREATE VIEW metric_summaries AS
SELECT s.run, n.name, s.first, s.last, s.min, s.max, s.count FROM run_metrics s JOIN metric_names n ON n.id = s.metric;

-- The points of older files, one in a block.
INSERT INTO metric_names (name)
SELECT name FROM metrics_as_rows UNION SELECT name FROM superseded_as_rows UNION SELECT name FROM summaries_with_names;

INSERT INTO metric_blocks (run, superseded, seq, metric, metrics, rank, ranks, step, steps, time, bits, p0, v0)
SELECT run, superseded, seq, n.id, 1, rank, 1, step, 1, unixepoch(substr(time, 1, 19)) * 1000000 + CAST(substr(time, 21, 6) AS INTEGER),
  CASE WHEN bits IS NOT NULL THEN json_object('0', bits) END, exact, value
FROM (SELECT 0 AS superseded, * FROM metrics_as_rows UNION ALL SELECT 1, * FROM superseded_as_rows) JOIN metric_names n USING (name);

INSERT INTO run_metrics
SELECT s.run, n.id, s.first, s.last, s.min, s.max, s.count FROM summaries_with_names s JOIN metric_names n USING (name);

DROP TABLE metrics_as_rows;
DROP TABLE superseded_as_rows;
DROP TABLE summaries_with_names;
