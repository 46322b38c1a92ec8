# Nothing: it tells whether Slurm comes up.
