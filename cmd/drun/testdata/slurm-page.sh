# The job of docs/schedulers.md, with a time limit of a minute, in which it cannot end; run by slurm.sh. PAGE has the
# job and its recipe.
cp "$PAGE/job.sh" "$PAGE/train.star" .
drun run train.star -n 4 --name undisturbed --home undisturbed >undisturbed.out 2>&1

# Before it is to be stopped, the first attempt does not go on.
sed -e 's/^    for step in/    first = state["step"] == 0\n&/' -e 's/^        state\["step"\] = step/&\n        for _ in range(1000000000 if first and step == 100 else 0):\n            if run.should_stop():\n                break/' train.star >waits.star
grep -q 'if first and step == 100' waits.star
mv waits.star train.star

SBATCH_TIMELIMIT=1 SBATCH_SIGNAL=TERM@50 sbatch -Q job.sh
waitFor "the job begins" 30 grep -q weights .drun/history.db
waitFor "it is interrupted, and back in the queue" 100 sh -c 'squeue -h -t PENDING | grep -q weights\\\|job && ! squeue -h -t COMPLETING | grep -q .'
drun show weights | grep interrupted
# Slurm lets a job wait for two minutes that was requeued. Some seconds are needed: a job that starts in the second in which its
# nodes have ended it before is refused by them ("Job credential revoked"), and gone for good. With more time it is not stopped again.
scontrol update JobId=1 StartTime=now+3 TimeLimit=10
waitFor "it goes on until it is done" 60 grep -q 'run 1 weights: done' weights.out
cat weights.out
if [ "$(sed -n 's/.* rank 3 of 4 .*: //p' undisturbed.out)" != "$(sed -n 's/.* rank 3 of 4 .*: step 600/step 600/p' weights.out)" ]; then
	cat undisturbed.out
	fail "the bits are not those of an undisturbed run on one machine"
fi

# scancel ends it for good.
sed 's/weights/cancelled/' job.sh >cancelled.sh
sbatch -Q cancelled.sh
waitFor "the second job is at work" 60 sh -c 'drun show cancelled --home .drun && squeue -h -t RUNNING | grep -q 2'
sleep 1
scancel 2
waitFor "it ends" 60 sh -c '! squeue -h | grep -q .'
drun show cancelled | grep interrupted
