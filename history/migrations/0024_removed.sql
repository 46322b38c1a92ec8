-- Runs that were moved to the trash, and who did that: once one is gone for good, it is not entered again unawares.
CREATE TABLE removed (
  uid  TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  who  TEXT NOT NULL,
  time TEXT NOT NULL
) WITHOUT ROWID;
