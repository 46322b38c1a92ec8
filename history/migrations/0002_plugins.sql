-- The plugins that a run used.
CREATE TABLE plugins (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,             -- as --backend names it
  version TEXT NOT NULL,             -- as the plugin says; '' until it has
  path    TEXT NOT NULL,
  sha256  TEXT NOT NULL,             -- of the file, hexadecimal
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
