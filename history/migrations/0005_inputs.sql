-- What else the bits of a run depend on. NULL in runs from before this was kept.
ALTER TABLE runs ADD COLUMN deterministic INTEGER;
ALTER TABLE runs ADD COLUMN go_version TEXT;

-- Where each rank ran, and with what it computed.
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

-- The files that the recipe read. A path has a row for each content that was read from it.
CREATE TABLE data_files (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  path   TEXT NOT NULL,               -- beneath the recipe's folder; absolute in a --data folder
  sha256 TEXT NOT NULL,               -- hexadecimal
  bytes  INTEGER NOT NULL,
  PRIMARY KEY (run, path, sha256)
) WITHOUT ROWID;
