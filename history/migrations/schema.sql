-- What all migrations make: go test ./internal/sqldb -run Schemas -update
CREATE TABLE runs (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  uid        TEXT NOT NULL UNIQUE,   -- random; names the run outside this file
  name       TEXT NOT NULL UNIQUE,   -- calm-otter
  recipe     TEXT NOT NULL,          -- path as given
  world_size INTEGER NOT NULL,
  backend    TEXT NOT NULL,
  seed       INTEGER NOT NULL,
  threads    INTEGER NOT NULL,       -- kernel threads a rank
  started    TEXT NOT NULL,
  seconds    REAL,                   -- NULL while running, and when lost
  exit_code  INTEGER,                -- likewise
  error      TEXT NOT NULL DEFAULT '',
  version    TEXT NOT NULL,          -- of drun
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,       -- of the agent
  dir        TEXT NOT NULL,          -- working directory
  command    TEXT NOT NULL           -- JSON array of the arguments
, parent INTEGER REFERENCES runs (id) ON DELETE SET NULL, parent_step INTEGER, batch INTEGER NOT NULL DEFAULT 0, deterministic INTEGER, go_version TEXT, parent_points INTEGER, inputs TEXT, bits_key TEXT, numerics INTEGER, data_dirs TEXT, git_commit TEXT, git_dirty INTEGER, trashed TEXT, project TEXT, sweep TEXT, ended_early TEXT, project_name TEXT, owner TEXT, leased TEXT, clock REAL, parent_uid TEXT, status TEXT NOT NULL DEFAULT 'running'
  CHECK (status IN ('pending', 'running', 'done', 'failed', 'interrupted', 'stopped early', 'preempted', 'cancelled', 'lost')));
CREATE TABLE logs (
  id     INTEGER PRIMARY KEY,
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank   INTEGER NOT NULL,           -- -1: the agent itself
  stream TEXT NOT NULL CHECK (stream IN ('stdout', 'stderr')),
  time   TEXT NOT NULL,
  text   TEXT NOT NULL               -- one line, without its end
);
CREATE INDEX logs_run ON logs (run);
CREATE TABLE sources (
  sha256  TEXT PRIMARY KEY,          -- hexadecimal
  content BLOB NOT NULL
);
CREATE TABLE run_sources (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  path   TEXT NOT NULL,
  sha256 TEXT NOT NULL REFERENCES sources (sha256),
  role   TEXT NOT NULL CHECK (role IN ('recipe', 'load')),
  PRIMARY KEY (run, path)
) WITHOUT ROWID;
CREATE TABLE attempts (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,          -- 0, then 1, … after restarts
  started TEXT NOT NULL,
  seconds REAL,                      -- NULL while it runs, and when lost
  status  TEXT NOT NULL,             -- as in runs
  error   TEXT NOT NULL DEFAULT '', points INTEGER NOT NULL DEFAULT 0, from_step INTEGER,
  PRIMARY KEY (run, attempt)
) WITHOUT ROWID;
CREATE TABLE tags (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  tag TEXT NOT NULL,
  PRIMARY KEY (run, tag)
) WITHOUT ROWID;
CREATE TABLE notes (
  id   INTEGER PRIMARY KEY,
  run  INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  time TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX notes_run ON notes (run);
CREATE TABLE checkpoints (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step  INTEGER NOT NULL,
  score REAL,
  bytes INTEGER NOT NULL,            -- of all ranks' tensors, before equal ones are stored once
  time  TEXT NOT NULL, points INTEGER,
  PRIMARY KEY (run, step)
) WITHOUT ROWID;
CREATE TABLE plugins (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,             -- as --backend names it
  version TEXT NOT NULL,             -- as the plugin says; '' until it has
  path    TEXT NOT NULL,
  sha256  TEXT NOT NULL,             -- of the file, hexadecimal
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE TABLE snapshots (
  id     INTEGER PRIMARY KEY,
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  time   TEXT NOT NULL,
  reason TEXT NOT NULL               -- the run's status, or the signal that asked
);
CREATE INDEX snapshots_run ON snapshots (run);
CREATE TABLE snapshot_ranks (
  snapshot INTEGER NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
  rank     INTEGER NOT NULL,
  state    TEXT NOT NULL,            -- running, waiting, returned from main, …, or what it did outside of calls
  call     TEXT NOT NULL,            -- that it was in, or had made last; '': none
  number   INTEGER NOT NULL,         -- of the call among its group's collectives, from 1; 0: point to point, or none
  "group"  INTEGER NOT NULL,         -- 0: all ranks
  position TEXT NOT NULL,            -- in the recipe; '' where it is not known
  seconds  REAL NOT NULL,            -- since when it did that
  PRIMARY KEY (snapshot, rank)
) WITHOUT ROWID;
CREATE TABLE snapshot_calls (
  snapshot INTEGER NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
  rank     INTEGER NOT NULL,
  nth      INTEGER NOT NULL,         -- 1 is the latest
  call     TEXT NOT NULL,
  number   INTEGER NOT NULL,
  "group"  INTEGER NOT NULL,
  position TEXT NOT NULL,
  ago      REAL NOT NULL,            -- seconds from its start to the snapshot
  seconds  REAL,                     -- how long it took; NULL: it had not ended, or nobody had waited for it
  async    INTEGER NOT NULL,
  PRIMARY KEY (snapshot, rank, nth)
) WITHOUT ROWID;
CREATE TABLE ranks (
  run        INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank       INTEGER NOT NULL,
  node       INTEGER NOT NULL,
  local_rank INTEGER NOT NULL,        -- on its node
  host       TEXT NOT NULL,
  threads    INTEGER NOT NULL,        -- of its kernels
  kernels    TEXT NOT NULL,           -- avx512, avx2, neon or scalar
  PRIMARY KEY (run, rank)
) WITHOUT ROWID;
CREATE TABLE data_files (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  path   TEXT NOT NULL,               -- beneath the recipe's folder; absolute in a --data folder
  sha256 TEXT NOT NULL,               -- hexadecimal
  bytes  INTEGER NOT NULL, modified TEXT, position TEXT, node INTEGER,
  PRIMARY KEY (run, path, sha256)
) WITHOUT ROWID;
CREATE INDEX runs_inputs ON runs (inputs);
CREATE TABLE updates (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  first   INTEGER NOT NULL,            -- number of the first update in the row, from 1
  digests BLOB NOT NULL,               -- 8 bytes each, the highest first
  PRIMARY KEY (run, attempt, rank, first)
) WITHOUT ROWID;
CREATE TABLE step_marks (
  run        INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt    INTEGER NOT NULL,
  seq        INTEGER NOT NULL,         -- order within the attempt
  name       TEXT NOT NULL,            -- of the metric; '': checkpoint.save
  step       INTEGER NOT NULL,
  updates    INTEGER NOT NULL,
  step_by    INTEGER NOT NULL,
  updates_by INTEGER NOT NULL,
  count      INTEGER NOT NULL,
  PRIMARY KEY (run, attempt, seq)
) WITHOUT ROWID;
CREATE TABLE metric_names (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);
CREATE TABLE run_metrics (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  metric INTEGER NOT NULL REFERENCES metric_names (id),
  first  REAL,                       -- NULL is NaN
  last   REAL,                       -- the value recorded last
  min    REAL,                       -- NaN left out; NULL: nothing else
  max    REAL,
  count  INTEGER NOT NULL, last_step INTEGER, last_time INTEGER, rank INTEGER,
  PRIMARY KEY (run, metric)
) WITHOUT ROWID;
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
CREATE TABLE rank_usage (
  run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt     INTEGER NOT NULL,
  rank        INTEGER NOT NULL,
  time        INTEGER NOT NULL,        -- microseconds since 1970
  cpu         REAL NOT NULL,           -- seconds of all threads, in the program and in the system
  resident    INTEGER,                 -- bytes of memory; NULL: at the end
  peak        INTEGER NOT NULL,        -- the most so far
  collectives REAL NOT NULL,           -- seconds in calls of dist that took more than a moment
  waiting     REAL NOT NULL, machine_cpu REAL, machine_memory INTEGER, machine_sent INTEGER, machine_received INTEGER,           -- seconds of these in which the rank slept, until others came
  PRIMARY KEY (run, attempt, rank, time)
) WITHOUT ROWID;
CREATE TABLE progress (
  run     INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  label   TEXT NOT NULL,
  current INTEGER NOT NULL,
  total   INTEGER NOT NULL,           -- -1: not known
  began   INTEGER NOT NULL,           -- microseconds since 1970, as time
  time    INTEGER NOT NULL
);
CREATE TABLE contents (
  sha256 TEXT PRIMARY KEY,            -- hexadecimal
  data   BLOB NOT NULL
);
CREATE TABLE "params" (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  type  TEXT NOT NULL CHECK (type IN ('int', 'float', 'bool', 'string', 'bytes', 'none', 'secret', 'list')),
  value TEXT NOT NULL,               -- JSON: 64, 0.1, true, "relu", null, [64,64]; floats NaN, Infinity as strings
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE TABLE "artifacts" (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  step   INTEGER NOT NULL,            -- -1: none was given
  rank   INTEGER NOT NULL,
  kind   TEXT NOT NULL,               -- bytes, text, tensor, image, histogram, table
  bytes  INTEGER NOT NULL,
  sha256 TEXT NOT NULL REFERENCES contents (sha256),
  time   TEXT NOT NULL,
  PRIMARY KEY (run, name, step, kind)
) WITHOUT ROWID;
CREATE INDEX artifacts_content ON artifacts (sha256);
CREATE INDEX runs_parent_uid ON runs (parent_uid);
CREATE TABLE follows (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  server TEXT NOT NULL,              -- its address
  PRIMARY KEY (run, server)
) WITHOUT ROWID;
CREATE TABLE mlflow_experiments (
  id       INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE,
  location TEXT NOT NULL,             -- where its runs' artifacts are; '': with the server
  created  INTEGER NOT NULL,
  updated  INTEGER NOT NULL,
  deleted  INTEGER,                   -- NULL: it is not
  tags     TEXT NOT NULL              -- JSON object
);
CREATE INDEX runs_project ON runs (project_name);
CREATE TABLE mlflow_tags (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  key   TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run, key)
) WITHOUT ROWID;
CREATE TABLE mlflow_inputs (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,
  digest  TEXT NOT NULL,
  context TEXT,                       -- such as training; NULL: not said
  input   TEXT NOT NULL,              -- JSON, as the client sent it
  PRIMARY KEY (run, name, digest)
) WITHOUT ROWID;
CREATE TABLE mlflow_models (
  id         TEXT PRIMARY KEY,
  project    TEXT,                    -- NULL: none
  source     TEXT NOT NULL,           -- uid of the run that made it; '': none did
  name       TEXT NOT NULL,
  type       TEXT NOT NULL,
  status     TEXT NOT NULL,
  created    INTEGER NOT NULL,
  updated    INTEGER NOT NULL,
  deleted    INTEGER,
  params     TEXT NOT NULL,           -- JSON object, as tags
  tags       TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE mlflow_links (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  output INTEGER NOT NULL,            -- 1: it made the model
  model  TEXT NOT NULL,
  step   INTEGER NOT NULL,
  PRIMARY KEY (run, output, model)
) WITHOUT ROWID;
CREATE TABLE mlflow_model_points (
  model   TEXT NOT NULL,
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,
  step    INTEGER NOT NULL,
  time    INTEGER NOT NULL,
  value   REAL NOT NULL,              -- NaN is a text
  dataset TEXT NOT NULL,
  digest  TEXT NOT NULL,
  PRIMARY KEY (model, run, name, step, time, value, dataset, digest)
);
CREATE VIEW mlflow_params AS
SELECT run, name, CASE type
    WHEN 'string' THEN json_extract(value, '$')
    WHEN 'bool' THEN iif(value = 'true', 'True', 'False')
    WHEN 'none' THEN 'None'
    WHEN 'float' THEN CASE
      WHEN value = '"NaN"' THEN 'nan' WHEN value = '"Infinity"' THEN 'inf' WHEN value = '"-Infinity"' THEN '-inf'
      WHEN instr(value, 'e+') = 0 OR power >= 16 THEN value
      -- 1.5e+06 is 1500000.0
      ELSE iif(value LIKE '-%', '-', '') || substr(digits || '0000000000000000', 1, power + 1) || '.' || iif(length(digits) > power + 1, substr(digits, power + 2), '0') END
    WHEN 'secret' THEN '[redacted]'
    ELSE value END AS text
FROM (SELECT *, CAST(substr(value, instr(value, 'e+') + 2) AS INTEGER) AS power,
  replace(replace(substr(value, 1, instr(value, 'e+') - 1), '-', ''), '.', '') AS digits FROM params);
CREATE VIEW mlflow_run_tags AS
SELECT run, key, value FROM mlflow_tags
UNION ALL SELECT run, substr(tag, 1, instr(tag || '=', '=') - 1), substr(tag, instr(tag || '=', '=') + 1) FROM tags
UNION ALL SELECT id, 'mlflow.runName', name FROM runs r WHERE NOT EXISTS (SELECT 1 FROM mlflow_tags WHERE run = r.id AND key = 'mlflow.runName')
UNION ALL SELECT id, 'mlflow.source.name', recipe FROM runs r WHERE NOT EXISTS (SELECT 1 FROM mlflow_tags WHERE run = r.id AND key = 'mlflow.runName');
CREATE TABLE replays (
  id      INTEGER PRIMARY KEY,
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  time    TEXT NOT NULL,
  host    TEXT NOT NULL,
  version TEXT NOT NULL,             -- of drun
  same    INTEGER,                   -- NULL: there was nothing to compare
  result  TEXT NOT NULL              -- as drun replay says it
);
CREATE INDEX replays_run ON replays (run);
CREATE TABLE device_copies (
  run              INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt          INTEGER NOT NULL,
  rank             INTEGER NOT NULL,
  position         TEXT NOT NULL,      -- of the call in the recipe
  call             TEXT NOT NULL,
  uploads          INTEGER NOT NULL,   -- to the device
  uploaded_bytes   INTEGER NOT NULL,
  downloads        INTEGER NOT NULL,   -- back
  downloaded_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, attempt, rank, position, call)
) WITHOUT ROWID;
CREATE INDEX runs_status ON runs (status);
CREATE TABLE jobs (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  run       INTEGER REFERENCES runs (id) ON DELETE SET NULL,
  target    TEXT NOT NULL,           -- its name in the file of targets
  handle    TEXT NOT NULL,           -- what the scheduler calls the job; '': it does not have it yet
  state     TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'interrupted', 'stopped early', 'preempted', 'cancelled', 'lost')),
  reason    TEXT NOT NULL,           -- for a person
  code      INTEGER,                 -- drun's exit code; NULL: not known
  spec      TEXT NOT NULL,           -- JSON: what was handed over
  submitted TEXT NOT NULL,
  asked     TEXT,                    -- when its end was asked for; NULL: it was not
  ended     TEXT
);
CREATE INDEX jobs_state ON jobs (state);
CREATE INDEX jobs_run ON jobs (run);
CREATE TABLE removed (
  uid  TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  who  TEXT NOT NULL,
  time TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO mlflow_experiments VALUES (0, 'Default', '', 0, 0, NULL, '{}'); -- of runs without a project
