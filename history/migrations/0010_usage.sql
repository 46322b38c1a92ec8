-- What the ranks used of their machine, sampled every few seconds, and at their ends. All but memory
-- counts from the start of the attempt.
CREATE TABLE rank_usage (
  run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt     INTEGER NOT NULL,
  rank        INTEGER NOT NULL,
  time        INTEGER NOT NULL,        -- microseconds since 1970
  cpu         REAL NOT NULL,           -- seconds of all threads, in the program and in the system
  resident    INTEGER,                 -- bytes of memory; NULL: at the end
  peak        INTEGER NOT NULL,        -- the most so far
  collectives REAL NOT NULL,           -- seconds in calls of dist that took more than a moment
  waiting     REAL NOT NULL,           -- seconds of these in which the rank slept, until others came
  PRIMARY KEY (run, attempt, rank, time)
) WITHOUT ROWID;
