-- The SHA-256 of all that the catalog says of an entry, so that a change in it is
-- noticed as one in the chunks is. '': an older drun saved it.
ALTER TABLE entries ADD COLUMN digest TEXT NOT NULL DEFAULT '';
