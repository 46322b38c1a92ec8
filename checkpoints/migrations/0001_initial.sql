-- The catalog. The bytes are in the files checkpoints/<pack>.db, each with one
-- table chunks (id INTEGER PRIMARY KEY, sha256 TEXT, data BLOB).

CREATE TABLE checkpoints (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of saving
  run        TEXT NOT NULL,                      -- runs.uid in history.db
  step       INTEGER NOT NULL,
  score      REAL,                               -- NULL: none, or NaN
  world_size INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,                   -- of all ranks' entries
  time       TEXT NOT NULL,                      -- RFC 3339, UTC
  UNIQUE (run, step)
);

CREATE TABLE entries (
  id         INTEGER PRIMARY KEY,
  checkpoint INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,
  rank       INTEGER NOT NULL,
  name       TEXT NOT NULL,
  kind       TEXT NOT NULL,                      -- tensor, value, …: the writer's word
  dtype      TEXT NOT NULL,
  shape      TEXT NOT NULL,                      -- JSON array
  bytes      INTEGER NOT NULL,
  UNIQUE (checkpoint, rank, name)
);

CREATE TABLE packs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  file TEXT NOT NULL UNIQUE                      -- in the folder checkpoints
);

CREATE TABLE chunks (
  sha256 TEXT PRIMARY KEY,                       -- of the data, hexadecimal
  pack   INTEGER NOT NULL REFERENCES packs (id),
  row    INTEGER NOT NULL,                       -- chunks.id in the pack
  bytes  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX chunks_pack ON chunks (pack);

-- The data of an entry is that of its chunks one after the other.
CREATE TABLE entry_chunks (
  entry  INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
  n      INTEGER NOT NULL,
  sha256 TEXT NOT NULL REFERENCES chunks (sha256),
  PRIMARY KEY (entry, n)
) WITHOUT ROWID;
CREATE INDEX entry_chunks_sha256 ON entry_chunks (sha256);
