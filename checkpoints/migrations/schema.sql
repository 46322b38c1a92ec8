-- What all migrations make: go test ./internal/sqldb -run Schemas -update
CREATE TABLE checkpoints (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of saving
  run        TEXT NOT NULL,                      -- runs.uid in history.db
  step       INTEGER NOT NULL,
  score      REAL,                               -- NULL: none, or NaN
  world_size INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,                   -- of all ranks' entries
  time       TEXT NOT NULL, points INTEGER NOT NULL DEFAULT -1,                      -- RFC 3339, UTC
  UNIQUE (run, step)
);
CREATE TABLE packs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  file TEXT NOT NULL UNIQUE                      -- in the folder checkpoints
);
CREATE TABLE catalog (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  store      TEXT NOT NULL,                      -- random
  generation INTEGER NOT NULL                    -- commits so far
);
CREATE TABLE dropped (
  file TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE entries (
  id         INTEGER PRIMARY KEY,
  checkpoint INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,
  rank       INTEGER NOT NULL,
  name       TEXT NOT NULL,                      -- unique within the rank
  kind       TEXT NOT NULL,                      -- tensor, value, …: the writer's word
  dtype      TEXT NOT NULL,
  shape      TEXT NOT NULL,                      -- JSON array
  bytes      INTEGER NOT NULL,
  digest     BLOB NOT NULL                       -- SHA-256 of all that is said of it; empty: an older drun saved it
);
CREATE INDEX entries_rank ON entries (checkpoint, rank);
CREATE TABLE chunks (
  id     INTEGER PRIMARY KEY,
  sha256 BLOB NOT NULL UNIQUE,                   -- of the data
  bytes  INTEGER NOT NULL,
  pack   INTEGER REFERENCES packs (id),          -- NULL: the data is here
  row    INTEGER,                                -- chunks.id in the pack
  sum    BLOB,                                   -- XXH3-128 of the data in the pack; NULL: not known
  data   BLOB                                    -- NULL: it is in the pack
);
CREATE INDEX chunks_pack ON chunks (pack) WHERE pack IS NOT NULL;
CREATE TABLE entry_chunks (
  entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
  n     INTEGER NOT NULL,
  chunk INTEGER NOT NULL REFERENCES chunks (id),
  PRIMARY KEY (entry, n)
) WITHOUT ROWID;
CREATE INDEX entry_chunks_chunk ON entry_chunks (chunk);
INSERT INTO catalog VALUES (1, lower(hex(randomblob(16))), 0);
