-- Packs that left the catalog: their files may be removed, if they still exist.
CREATE TABLE dropped (
  file TEXT PRIMARY KEY
) WITHOUT ROWID;
