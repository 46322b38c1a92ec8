-- What is kept of different kinds may have the same name and step: a histogram takes no image's place.
CREATE TABLE artifacts_of_runs (
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
INSERT INTO artifacts_of_runs SELECT run, name, step, rank, kind, bytes, sha256, time FROM artifacts;
DROP TABLE artifacts;
ALTER TABLE artifacts_of_runs RENAME TO artifacts;
CREATE INDEX artifacts_content ON artifacts (sha256);
