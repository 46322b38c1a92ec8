-- What the recipe's calls copied between a rank's memory and its device.
CREATE TABLE device_copies (
  run              INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  attempt          INTEGER NOT NULL,
  rank             INTEGER NOT NULL,
  position         TEXT NOT NULL,      -- of the call in the recipe
  call             TEXT NOT NULL,
  uploads          INTEGER NOT NULL,   -- to the device
  uploaded_bytes   INTEGER NOT NULL,
  downloads        INTEGER NOT NULL,   -- back
  downloaded_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, attempt, rank, position, call)
) WITHOUT ROWID;
