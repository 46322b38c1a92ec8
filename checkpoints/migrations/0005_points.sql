-- How many points the run had recorded before the checkpoint; -1: it was not said.
ALTER TABLE checkpoints ADD COLUMN points INTEGER NOT NULL DEFAULT -1;
