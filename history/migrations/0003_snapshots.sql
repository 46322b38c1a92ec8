-- What every rank was doing when the run failed, or when somebody asked.
CREATE TABLE snapshots (
  id     INTEGER PRIMARY KEY,
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  time   TEXT NOT NULL,
  reason TEXT NOT NULL               -- the run's status, or the signal that asked
);
CREATE INDEX snapshots_run ON snapshots (run);

CREATE TABLE snapshot_ranks (
  snapshot INTEGER NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
  rank     INTEGER NOT NULL,
  state    TEXT NOT NULL,            -- running, waiting, returned from main, …, or what it did outside of calls
  call     TEXT NOT NULL,            -- that it was in, or had made last; '': none
  number   INTEGER NOT NULL,         -- of the call among its group's collectives, from 1; 0: point to point, or none
  "group"  INTEGER NOT NULL,         -- 0: all ranks
  position TEXT NOT NULL,            -- in the recipe; '' where it is not known
  seconds  REAL NOT NULL,            -- since when it did that
  PRIMARY KEY (snapshot, rank)
) WITHOUT ROWID;

CREATE TABLE snapshot_calls (
  snapshot INTEGER NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
  rank     INTEGER NOT NULL,
  nth      INTEGER NOT NULL,         -- 1 is the latest
  call     TEXT NOT NULL,
  number   INTEGER NOT NULL,
  "group"  INTEGER NOT NULL,
  position TEXT NOT NULL,
  ago      REAL NOT NULL,            -- seconds from its start to the snapshot
  seconds  REAL,                     -- how long it took; NULL: it had not ended, or nobody had waited for it
  async    INTEGER NOT NULL,
  PRIMARY KEY (snapshot, rank, nth)
) WITHOUT ROWID;
