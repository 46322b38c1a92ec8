# Slurm comes up.
