-- One list of statuses for runs, attempts and jobs. A run whose ranks were killed has failed, with the exit code 3, and one that
-- its sweep ended says so.
DROP INDEX runs_status;
ALTER TABLE runs RENAME COLUMN status TO earlier_status;
ALTER TABLE runs ADD COLUMN status TEXT NOT NULL DEFAULT 'running'
  CHECK (status IN ('pending', 'running', 'done', 'failed', 'interrupted', 'stopped early', 'preempted', 'cancelled', 'lost'));
UPDATE runs SET status = CASE WHEN earlier_status = 'killed' THEN 'failed'
  WHEN earlier_status = 'interrupted' AND ended_early IS NOT NULL THEN 'stopped early' ELSE earlier_status END;
ALTER TABLE runs DROP COLUMN earlier_status;
CREATE INDEX runs_status ON runs (status);
UPDATE attempts SET status = 'failed' WHERE status = 'killed';

-- What drun submit has handed to a scheduler.
CREATE TABLE jobs (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  run       INTEGER REFERENCES runs (id) ON DELETE SET NULL,
  target    TEXT NOT NULL,           -- its name in the file of targets
  handle    TEXT NOT NULL,           -- what the scheduler calls the job; '': it does not have it yet
  state     TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'interrupted', 'stopped early', 'preempted', 'cancelled', 'lost')),
  reason    TEXT NOT NULL,           -- for a person
  code      INTEGER,                 -- drun's exit code; NULL: not known
  spec      TEXT NOT NULL,           -- JSON: what was handed over
  submitted TEXT NOT NULL,
  asked     TEXT,                    -- when its end was asked for; NULL: it was not
  ended     TEXT
);
CREATE INDEX jobs_state ON jobs (state);
CREATE INDEX jobs_run ON jobs (run);
