# What Slurm's accounting knows of jobs that the controller has forgotten; run by slurm.sh.
cat >held.star <<-'EOF2'
	def main():
	    for _ in range(1000000000):
	        if run.should_stop():
	            break
EOF2
printf '[here]\nkind = "slurm"\n' >targets.toml
export DRUN_TARGETS=$PWD/targets.toml
code=0
drun submit here held.star --account none >out 2>&1 || code=$?
[ $code = 2 ] && grep -q 'here: Slurm refuses the job: Invalid account' out && grep -q 'hint: change --account' out || fail "the account"
drun submit here held.star --account team --name gone
waitFor "it runs" 60 sh -c 'drun jobs | grep "running.*gone"'
# It ends while nobody looks, and leaves no exit code.
kill "$(pgrep -f 'drun jobs follow' | head -n 1)"
job=$(squeue -h -o %i -n gone)
folder=$(ls -d .drun/jobs/*/)
chmod a-w "$folder" && mount --bind -o ro "$folder" "$folder"
scancel $job
waitFor "the controller has forgotten it" 60 sh -c "! squeue -h -t all | grep -q . && ! scontrol show job $job"
waitFor "accounting knows it" 60 sh -c "sacct -P -n -X -j $job -o State | grep CANCELLED"
code=0
drun jobs wait gone >out 2>&1 || code=$?
[ $code = 130 ] && grep -q 'run gone is cancelled: by scancel' out || fail "what accounting knows"
echo "ok it is told"
