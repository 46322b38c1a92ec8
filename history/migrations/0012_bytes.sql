-- A parameter may be a text that is not UTF-8, which JSON has not: its bytes as base64.
CREATE TABLE params_of_runs (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name  TEXT NOT NULL,
  type  TEXT NOT NULL CHECK (type IN ('int', 'float', 'bool', 'string', 'bytes', 'none', 'secret')),
  value TEXT NOT NULL,               -- JSON: 64, 0.1, true, "relu", null; floats NaN, Infinity as strings
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
INSERT INTO params_of_runs SELECT run, name, type, value FROM params;
DROP TABLE params;
ALTER TABLE params_of_runs RENAME TO params;
