# What Slurm's accounting knows of jobs that the controller has forgotten; run by slurm.sh.
set -eu
cat >held.star <<-'EOF2'
	def main():
	    for _ in range(1000000000):
	        if run.should_stop():
	            break
EOF2
printf '[here]\nkind = "slurm"\n' >targets.toml
export DRUN_TARGETS=$PWD/targets.toml
waitFor() { # NAME COMMAND…
	name=$1 left=300
	shift
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		[ $left -gt 0 ] || { drun jobs; cat .drun/jobs/log; squeue; sacct -P; tail -n 20 ../slurmdbd.log ../slurmctld.log; echo "FAIL $name: not in time"; exit 1; }
		sleep 0.2
	done
	echo "ok $name"
}
code=0
drun submit here held.star --account none >out 2>&1 || code=$?
[ $code = 2 ] && grep -q 'here: Slurm refuses the job: Invalid account' out && grep -q 'hint: change --account' out || { cat out; echo "FAIL the account"; exit 1; }
drun submit here held.star --account team --name gone
waitFor "it runs" sh -c 'drun jobs | grep "running.*gone"'
# It ends while nobody looks, and leaves no exit code.
kill "$(pgrep -f 'drun jobs follow' | head -n 1)"
job=$(squeue -h -o %i -n gone)
folder=$(ls -d .drun/jobs/*/)
chmod a-w "$folder" && mount --bind -o ro "$folder" "$folder"
scancel $job
waitFor "the controller has forgotten it" sh -c "! squeue -h -t all | grep -q . && ! scontrol show job $job"
waitFor "accounting knows it" sh -c "sacct -P -n -X -j $job -o State | grep CANCELLED"
code=0
drun jobs wait gone >out 2>&1 || code=$?
[ $code = 130 ] && grep -q 'run gone is cancelled: by scancel' out || { cat out; drun jobs; echo "FAIL what accounting knows"; exit 1; }
echo "ok it is told"
