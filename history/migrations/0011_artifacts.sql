-- How far the loop of a running run has come (run.progress).
CREATE TABLE progress (
  run     INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  label   TEXT NOT NULL,
  current INTEGER NOT NULL,
  total   INTEGER NOT NULL,           -- -1: not known
  began   INTEGER NOT NULL,           -- microseconds since 1970, as time
  time    INTEGER NOT NULL
);

-- What recipes keep. Equal contents are stored once.
CREATE TABLE contents (
  sha256 TEXT PRIMARY KEY,            -- hexadecimal
  data   BLOB NOT NULL
);

CREATE TABLE artifacts (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  step   INTEGER NOT NULL,            -- -1: none was given
  rank   INTEGER NOT NULL,
  kind   TEXT NOT NULL,               -- bytes, text, tensor, image, histogram, table
  bytes  INTEGER NOT NULL,
  sha256 TEXT NOT NULL REFERENCES contents (sha256),
  time   TEXT NOT NULL,
  PRIMARY KEY (run, name, step)
) WITHOUT ROWID;
CREATE INDEX artifacts_content ON artifacts (sha256);
