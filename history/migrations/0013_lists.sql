-- A parameter may be a list of numbers, bools, texts, nulls and lists of these.
CREATE TABLE params_of_runs (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  type  TEXT NOT NULL CHECK (type IN ('int', 'float', 'bool', 'string', 'bytes', 'none', 'secret', 'list')),
  value TEXT NOT NULL,               -- JSON: 64, 0.1, true, "relu", null, [64,64]; floats NaN, Infinity as strings
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
INSERT INTO params_of_runs SELECT run, name, type, value FROM params;
DROP TABLE params;
ALTER TABLE params_of_runs RENAME TO params;
