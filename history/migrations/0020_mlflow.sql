-- What MLflow's clients record through drun serve, beside what every run has.

-- An experiment of MLflow is a project. Times are milliseconds since 1970.
CREATE TABLE mlflow_experiments (
  id       INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE,
  location TEXT NOT NULL,             -- where its runs' artifacts are; '': with the server
  created  INTEGER NOT NULL,
  updated  INTEGER NOT NULL,
  deleted  INTEGER,                   -- NULL: it is not
  tags     TEXT NOT NULL              -- JSON object
);
INSERT INTO mlflow_experiments VALUES (0, 'Default', '', 0, 0, NULL, '{}'); -- of runs without a project
CREATE INDEX runs_project ON runs (project_name);

-- Tags that are no tags of drun: with keys of MLflow's own, or too long.
CREATE TABLE mlflow_tags (
  run   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  key   TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- The data sets that a run says it used.
CREATE TABLE mlflow_inputs (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,
  digest  TEXT NOT NULL,
  context TEXT,                       -- such as training; NULL: not said
  input   TEXT NOT NULL,              -- JSON, as the client sent it
  PRIMARY KEY (run, name, digest)
) WITHOUT ROWID;

CREATE TABLE mlflow_models (
  id         TEXT PRIMARY KEY,
  project    TEXT,                    -- NULL: none
  source     TEXT NOT NULL,           -- uid of the run that made it; '': none did
  name       TEXT NOT NULL,
  type       TEXT NOT NULL,
  status     TEXT NOT NULL,
  created    INTEGER NOT NULL,
  updated    INTEGER NOT NULL,
  deleted    INTEGER,
  params     TEXT NOT NULL,           -- JSON object, as tags
  tags       TEXT NOT NULL
) WITHOUT ROWID;

-- The models that a run used or made.
CREATE TABLE mlflow_links (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  output INTEGER NOT NULL,            -- 1: it made the model
  model  TEXT NOT NULL,
  step   INTEGER NOT NULL,
  PRIMARY KEY (run, output, model)
) WITHOUT ROWID;

-- Points that are about a model, which the run has, too.
CREATE TABLE mlflow_model_points (
  model   TEXT NOT NULL,
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  name    TEXT NOT NULL,
  step    INTEGER NOT NULL,
  time    INTEGER NOT NULL,
  value   REAL NOT NULL,              -- NaN is a text
  dataset TEXT NOT NULL,
  digest  TEXT NOT NULL,
  PRIMARY KEY (model, run, name, step, time, value, dataset, digest)
);

-- Of the value recorded last. NULL: an older drun recorded it.
ALTER TABLE run_metrics ADD COLUMN last_step INTEGER;
ALTER TABLE run_metrics ADD COLUMN last_time INTEGER; -- microseconds since 1970

-- Parameters as MLflow has them: texts as Python's str writes values.
CREATE VIEW mlflow_params AS
SELECT run, name, CASE type
    WHEN 'string' THEN json_extract(value, '$')
    WHEN 'bool' THEN iif(value = 'true', 'True', 'False')
    WHEN 'none' THEN 'None'
    WHEN 'float' THEN CASE
      WHEN value = '"NaN"' THEN 'nan' WHEN value = '"Infinity"' THEN 'inf' WHEN value = '"-Infinity"' THEN '-inf'
      WHEN instr(value, 'e+') = 0 OR power >= 16 THEN value
      -- 1.5e+06 is 1500000.0
      ELSE iif(value LIKE '-%', '-', '') || substr(digits || '0000000000000000', 1, power + 1) || '.' || iif(length(digits) > power + 1, substr(digits, power + 2), '0') END
    WHEN 'secret' THEN '[redacted]'
    ELSE value END AS text
FROM (SELECT *, CAST(substr(value, instr(value, 'e+') + 2) AS INTEGER) AS power,
  replace(replace(substr(value, 1, instr(value, 'e+') - 1), '-', ''), '.', '') AS digits FROM params);

-- Tags as MLflow has them: baseline is a key without a value, team=a one with it. A run of drun has some that say what it is.
CREATE VIEW mlflow_run_tags AS
SELECT run, key, value FROM mlflow_tags
UNION ALL SELECT run, substr(tag, 1, instr(tag || '=', '=') - 1), substr(tag, instr(tag || '=', '=') + 1) FROM tags
UNION ALL SELECT id, 'mlflow.runName', name FROM runs r WHERE NOT EXISTS (SELECT 1 FROM mlflow_tags WHERE run = r.id AND key = 'mlflow.runName')
UNION ALL SELECT id, 'mlflow.source.name', recipe FROM runs r WHERE NOT EXISTS (SELECT 1 FROM mlflow_tags WHERE run = r.id AND key = 'mlflow.runName');
