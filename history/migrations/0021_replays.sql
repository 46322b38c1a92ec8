-- Repetitions of a run by drun replay: where, and what they came to.
CREATE TABLE replays (
  id      INTEGER PRIMARY KEY,
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  time    TEXT NOT NULL,
  host    TEXT NOT NULL,
  version TEXT NOT NULL,             -- of drun
  same    INTEGER,                   -- NULL: there was nothing to compare
  result  TEXT NOT NULL              -- as drun replay says it
);
CREATE INDEX replays_run ON replays (run);
