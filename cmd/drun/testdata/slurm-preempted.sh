# A sweep of 100 cells as one array of jobs, every third of which is taken from its node in the midst of its run and requeued, as
# preemption does; run by slurm.sh, on a login node whose home the nodes share.
cat >cells.star <<-'EOF2'
	p = run.params(cell = 0, held = True)

	def main():
	    weight = tensor.zeros(8)
	    state = {"weight": weight, "step": 0}
	    checkpoint.restore(state)
	    first = state["step"] == 0
	    for step in range(state["step"] + 1, 41):
	        weight.add_(tensor.randn(8) * p.cell)
	        run.log(sum = weight.sum().item(), step = step)
	        state["step"] = step
	        for _ in range(1000000000 if p.held and first and p.cell % 3 == 0 and step == 20 else 0):
	            if run.should_stop():
	                break
	        if run.should_stop():
	            checkpoint.save(state, step = step)
	            break
EOF2
cat >targets.toml <<-EOF2
	[here]
	kind = "slurm"
EOF2
export DRUN_TARGETS=$PWD/targets.toml
cells=cell=1 && for i in $(seq 2 100); do cells=$cells,$i; done
drun sweep cells.star -p $cells -p held=False --home undisturbed --jobs 4 >undisturbed.out 2>&1
drun sweep cells.star -p $cells --on here --jobs 6 >preempted.out 2>&1 & sweep=$!
taken=
while kill -0 $sweep 2>/dev/null; do
	for task in $(squeue -h -r -t R -o %i 2>/dev/null); do
		case " $taken " in *" $task "*) continue ;; esac
		[ $((${task#*_} % 3)) = 0 ] || continue
		# Its run has come to the step at which it waits.
		id=$(drun jobs --all --json 2>/dev/null | tr -d ' \n' | sed "s/.*\"job\":\"here:$task\",\"target\":\"here\",\"run\":\([0-9]*\).*/\1/")
		drun metrics "$id" --csv 2>/dev/null | grep -q 'sum,20,' || continue
		scontrol requeue "$task" && taken="$taken $task"
	done
	for task in $(squeue -h -r -t PD -o '%i %r' 2>/dev/null | sed -n 's/ BeginTime$//p'); do
		scontrol update JobId="$task" StartTime=now+3 2>/dev/null || true
	done
	sleep 1
done
wait $sweep || { tail -n 30 preempted.out; fail "the sweep"; }
[ "$(echo $taken | wc -w)" = 33 ] || fail "taken: $taken"
for home in undisturbed .drun; do
	drun sql --home $home "select p.value as cell, m.step, m.value from metrics m join params p on p.run = m.run and p.name = 'cell' order by 1, 2" >table.$home
done
[ "$(wc -l <table.undisturbed)" -ge 4000 ] && cmp table.undisturbed table..drun || fail "the table"
[ "$(drun sql "select count(*) from (select run from attempts group by run having count(*) = 2)" | tail -n 1)" = 33 ] || fail attempts
echo "ok 100 cells, of which 33 were taken from their nodes: the table of an undisturbed sweep"
