-- The run, and its checkpoint, that a run was resumed from.
ALTER TABLE runs ADD COLUMN parent INTEGER REFERENCES runs (id) ON DELETE SET NULL;
ALTER TABLE runs ADD COLUMN parent_step INTEGER;
-- Number of the last batch of records that is in: a batch is written once.
ALTER TABLE runs ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;

-- A parameter may be a secret, whose value is not kept.
CREATE TABLE params_of_runs (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  type  TEXT NOT NULL CHECK (type IN ('int', 'float', 'bool', 'string', 'none', 'secret')),
  value TEXT NOT NULL,               -- JSON: 64, 0.1, true, "relu", null; floats NaN, Infinity as strings
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
INSERT INTO params_of_runs SELECT run, name, type, value FROM params;
DROP TABLE params;
ALTER TABLE params_of_runs RENAME TO params;
