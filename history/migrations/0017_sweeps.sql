-- The sweep that a run is a cell of, as {"name", "cells", "command"}.
ALTER TABLE runs ADD COLUMN sweep TEXT;
-- Why a sweep ended a run early, whose status is then interrupted.
ALTER TABLE runs ADD COLUMN ended_early TEXT;
