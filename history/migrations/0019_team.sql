-- Runs that were recorded elsewhere, and came by a copy or live.
ALTER TABLE runs ADD COLUMN project_name TEXT; -- the project that the run belongs to, among those of a team; NULL: none
ALTER TABLE runs ADD COLUMN owner TEXT;        -- the user of the server who entered it, '' if there is no server; NULL: it was recorded here
ALTER TABLE runs ADD COLUMN leased TEXT;       -- until when it counts as running unless more is heard of it; NULL: a process of this home leads it
ALTER TABLE runs ADD COLUMN clock REAL;        -- by how many seconds its machine's clock was ahead of this one's; NULL: unknown
ALTER TABLE runs ADD COLUMN parent_uid TEXT;   -- uid of the run that it was resumed from, which may not be here; NULL: see parent
CREATE INDEX runs_parent_uid ON runs (parent_uid);

-- Runs of which a server is still to get something.
CREATE TABLE follows (
  run    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  server TEXT NOT NULL,              -- its address
  PRIMARY KEY (run, server)
) WITHOUT ROWID;
