-- Times are RFC 3339 text in UTC with six decimals: they sort as text and
-- SQLite's date functions understand them.

CREATE TABLE runs (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  uid        TEXT NOT NULL UNIQUE,   -- random; names the run outside this file
  name       TEXT NOT NULL UNIQUE,   -- calm-otter
  recipe     TEXT NOT NULL,          -- path as given
  status     TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'killed', 'interrupted', 'lost')),
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
);
CREATE INDEX runs_status ON runs (status);

CREATE TABLE params (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  type  TEXT NOT NULL CHECK (type IN ('int', 'float', 'bool', 'string', 'none')),
  value TEXT NOT NULL,               -- JSON: 64, 0.1, true, "relu", null; floats NaN, Infinity as strings
  PRIMARY KEY (run, name)
) WITHOUT ROWID;

CREATE TABLE metrics (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  seq   INTEGER NOT NULL,            -- order of recording within the run, from 1
  name  TEXT NOT NULL,
  step  INTEGER NOT NULL,
  rank  INTEGER NOT NULL,
  value REAL,                        -- NULL is NaN
  bits  INTEGER,                     -- the IEEE 754 bits, only where value cannot tell them: NaN and -0.0
  exact INTEGER NOT NULL,            -- 0: a timing, not compared between runs
  time  TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- One row a metric, kept with every batch, so that listing thousands of runs
-- does not read millions of points.
CREATE TABLE metric_summaries (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  first REAL,                        -- NULL is NaN
  last  REAL,                        -- the value recorded last
  min   REAL,                        -- NaN left out; NULL: nothing else
  max   REAL,
  count INTEGER NOT NULL,
  PRIMARY KEY (run, name)
) WITHOUT ROWID;

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
  error   TEXT NOT NULL DEFAULT '',
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

-- What checkpoints.db holds, for queries; the bytes are there.
CREATE TABLE checkpoints (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step  INTEGER NOT NULL,
  score REAL,
  bytes INTEGER NOT NULL,            -- of all ranks' tensors, before equal ones are stored once
  time  TEXT NOT NULL,
  PRIMARY KEY (run, step)
) WITHOUT ROWID;
