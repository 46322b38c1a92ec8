-- What decides the bits of a run, as SHA-256 in hexadecimal: without the data, and with it once the
-- run has ended. NULL: not known, as of an older drun, or a parameter is a secret.
ALTER TABLE runs ADD COLUMN inputs TEXT;
ALTER TABLE runs ADD COLUMN bits_key TEXT;
ALTER TABLE runs ADD COLUMN numerics INTEGER; -- version of drun's arithmetic
ALTER TABLE runs ADD COLUMN data_dirs TEXT;   -- JSON array of the --data folders, absolute
-- Of the recipe's folder; NULL: it is in no repository, or git did not answer.
ALTER TABLE runs ADD COLUMN git_commit TEXT;
ALTER TABLE runs ADD COLUMN git_dirty INTEGER; -- whether files there differ from the commit
CREATE INDEX runs_inputs ON runs (inputs);

ALTER TABLE data_files ADD COLUMN modified TEXT; -- when the file was changed last before it was read
ALTER TABLE data_files ADD COLUMN position TEXT; -- of the call in the recipe that read it first

-- Digests of the parameters, one after each update (a step of an optimizer). A row holds some in a row.
CREATE TABLE updates (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  first   INTEGER NOT NULL,            -- number of the first update in the row, from 1
  digests BLOB NOT NULL,               -- 8 bytes each, the highest first
  PRIMARY KEY (run, attempt, rank, first)
) WITHOUT ROWID;

-- How many updates rank 0 had made when it saved or recorded a step. A row holds points at equal
-- distances: the step grows by step_by, the updates by updates_by.
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
