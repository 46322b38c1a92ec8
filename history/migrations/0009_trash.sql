-- When the run was moved to the trash; NULL: it is not there.
ALTER TABLE runs ADD COLUMN trashed TEXT;
