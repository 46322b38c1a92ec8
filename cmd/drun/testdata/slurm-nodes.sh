# What the nodes of a job may lack, and nodes that die; run by slurm.sh, on a login node whose home the nodes share.
cat >node.star <<-'EOF2'
	p = run.params(held = True)

	def main():
	    weight = tensor.zeros(8)
	    state = {"weight": weight, "step": 0}
	    checkpoint.restore(state)
	    first = state["step"] == 0
	    for step in range(state["step"] + 1, 201):
	        weight.add_(dist.all_reduce(tensor.randn(8)))
	        run.log(sum = weight.sum().item(), step = step)
	        state["step"] = step
	        if step % 50 == 0:
	            checkpoint.save(state, step = step)
	        for _ in range(1000000000 if p.held and first and step == 120 else 0):
	            if run.should_stop():
	                break
	    print("rank %d of %d: %r" % (dist.rank(), dist.world_size(), weight.sum().item()))
EOF2
export DRUN_TARGETS=$PWD/targets.toml
printf '[here]\nkind = "slurm"\n[half]\nkind = "slurm"\nfolder = "%s/half"\noptions = ["--nodelist=node[1,3]"]\n' "$PWD" >targets.toml

# The disk of node3 is another one.
mkdir half
kill "$(cat ../slurmd.node3.pid)"
waitFor "slurmd of node3 has ended" 20 sh -c '! [ -e ../slurmd.node3.pid ]'
unshare --mount sh -c 'mount -t tmpfs none half && slurmd -N node3'
waitFor "node3 is there again" 60 sh -c 'sinfo -h -N -n node3 -t idle | grep -q .'
code=0
drun submit half node.star -n 2 --nnodes 2 --name torn --wait >out 2>&1 || code=$?
[ $code = 2 ] && grep -q 'run torn is failed: exit code 2: node3: .*/half/jobs/.* is not there: the nodes must share it' out || fail "a disk that is not shared: $code"
echo "ok a disk that is not shared"

# kills NODE: its slurmd, and all that it has started.
kills() {
	kill -9 "$(cat ../slurmd.$1.pid)"
	for p in /proc/[0-9]*; do
		if tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qx "SLURMD_NODENAME=$1"; then
			kill -9 "$(sed 's/.*) . \([0-9]*\) .*/\1/' "$p/stat")" "${p#/proc/}" 2>/dev/null || true # its slurmstepd, too
		fi
	done
}
drun run node.star -n 4 -p held=False --name undisturbed --home undisturbed >undisturbed.out 2>&1
sum() { sed -n 's/.*rank 3 of 4: //p' "$1" | tail -n 1; }
for which in other first; do
	drun submit here node.star -n 2 --nnodes 2 --name $which >out 2>&1 || fail "a job"
	waitFor "$which: it runs" 60 sh -c "drun metrics $which --csv | grep 'sum,120,'"
	job=$(squeue -h -o %i -n $which)
	first=$(scontrol -o show job $job | sed 's/.* BatchHost=\([^ ]*\) .*/\1/')
	node=$(scontrol show hostnames "$(squeue -h -o %N -j $job)" | grep -v "^$first$")
	[ $which = other ] || node=$first
	kills "$node"
	# Slurm lets a job wait for two minutes that was requeued.
	waitFor "$which: $node is dead, and it goes on" 120 sh -c "squeue -h -t PD -o '%i %r' | sed -n 's/ BeginTime$//p' | while read -r j; do scontrol update JobId=\$j StartTime=now; done; drun metrics $which --csv | grep 'sum,200,'"
	drun jobs wait $which >out 2>&1 || fail "$which is not done"
	drun logs $which >out
	[ -n "$(sum out)" ] && [ "$(sum out)" = "$(sum undisturbed.out)" ] || fail "the bits of $which: $(sum out), not $(sum undisturbed.out)"
	[ "$(drun sql "select count(*) from attempts a join runs r on r.id = a.run where r.name = '$which'" | tail -n 1)" = 2 ] || fail "the attempts of $which"
	slurmd -N "$node"
	waitFor "$node is there again" 60 sh -c "sinfo -h -N -n $node -t idle | grep -q ."
done
echo "ok a node that dies"
