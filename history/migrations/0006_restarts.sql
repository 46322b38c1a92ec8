-- A run that failed may start its ranks again, from a checkpoint: each start is an attempt.

-- The points of the run that were recorded before the attempt, and before the checkpoint.
ALTER TABLE attempts ADD COLUMN points INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN points INTEGER; -- NULL: an older drun saved it
-- The step of the checkpoint that the attempt went on from; NULL: it began anew.
ALTER TABLE attempts ADD COLUMN from_step INTEGER;

-- Points that a later attempt recorded again, or would have.
CREATE TABLE superseded_metrics (
  run     INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  seq     INTEGER NOT NULL,            -- as in metrics, which has no point with the same number
  name    TEXT NOT NULL,
  step    INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  value   REAL,
  bits    INTEGER,
  exact   INTEGER NOT NULL,
  time    TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- The points of the parent that were recorded before the checkpoint; NULL: not known.
ALTER TABLE runs ADD COLUMN parent_points INTEGER;
