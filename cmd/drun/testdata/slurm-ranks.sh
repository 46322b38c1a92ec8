# What srun and mpirun start, as ranks; run by slurm.sh.
cat >world.star <<-'EOF'
	def main():
	    x = tensor.full([2], dist.rank() + 1.0)
	    dist.all_reduce(x)
	    print("rank %d of %d, local %d of %d, node %d of %d, sum %r" % (dist.rank(), dist.world_size(), dist.local_rank(),
	        dist.local_size(), dist.node_rank(), dist.num_nodes(), x[0].item()))
EOF

# expect NAME RANKS SUM COMMAND…: the command succeeds and each of so many ranks, of one
# world, says the sum once.
expect() {
	name=$1 ranks=$2 sum=$3
	shift 3
	start=$(date +%s)
	if ! timeout 120 "$@" >out 2>&1; then
		cat out
		echo "FAIL $name"
		exit 1
	fi
	for rank in $(seq 0 $((ranks - 1))); do
		if [ "$(grep -c "rank $rank of $ranks, .*, sum $sum\$" out)" != 1 ]; then
			cat out
			echo "FAIL $name: rank $rank of $ranks with the sum $sum is not there once"
			exit 1
		fi
	done
	if [ "$(grep -c ' sum ' out)" != "$ranks" ]; then
		cat out
		echo "FAIL $name: more than $ranks ranks"
		exit 1
	fi
	echo "ok $name ($(($(date +%s) - start)) s)"
}

expect "srun, two nodes of two ranks" 4 10.0 srun -N 2 --ntasks=4 --ntasks-per-node=2 drun run world.star
expect "srun, three nodes with 2, 1 and 1 ranks" 4 10.0 srun -N 3 --ntasks=4 drun run world.star
expect "srun, a task of two ranks on each node" 4 10.0 srun -N 2 --ntasks-per-node=1 drun run world.star -n 2
expect "srun, one task of three ranks" 3 6.0 srun -N 1 -n 1 drun run world.star -n 3
if timeout 60 srun -N 2 --ntasks-per-node=2 drun run world.star -n 2 >out 2>&1 || ! grep -q "SLURM_STEP_NUM_TASKS say that this process is rank" out; then
	cat out
	echo "FAIL -n with several tasks on a node"
	exit 1
fi
expect "srun on one node" 4 10.0 srun -N 1 --ntasks=4 drun run world.star
for round in 1 2 3; do
	expect "srun, round $round of eight ranks" 8 36.0 srun -N 2 --ntasks-per-node=4 drun run world.star
done
expect "mpirun in an allocation, two nodes" 6 21.0 salloc -Q -N 2 --ntasks-per-node=3 mpirun -n 6 drun run world.star
expect "mpirun in an allocation, a process of three ranks on each node" 6 21.0 salloc -Q -N 2 --ntasks-per-node=3 mpirun --map-by ppr:1:node drun run world.star -n 3
expect "mpirun in an allocation, one node" 6 21.0 salloc -Q -N 1 -n 4 mpirun --oversubscribe -n 6 drun run world.star
printf '#!/bin/sh\ndrun run world.star\n' >script
expect "a batch script is one rank" 1 1.0 sh -c 'sbatch -Q -W -n 4 -o batch.out script && cat batch.out'

# Over MPI itself, whose processes mpirun has started on two nodes.
case $(ls "$DRUN_PLUGIN_PATH") in
*mpi*)
	cat >mpi.star <<-'EOF'
		def main():
		    x = tensor.full([100000], dist.rank() + 1.0)
		    dist.all_reduce(x)
		    half = dist.new_group([1, 2])
		    if dist.rank() in (1, 2):
		        dist.all_reduce(x, group = half)
		    dist.barrier()
		    print("rank %d of %d, on %s, sum %r" % (dist.rank(), dist.world_size(), dist.backend(), (10.0 if dist.rank() in (0, 3) else x[0].item() - 10)))
	EOF
	# These nodes have one /dev/shm, where Open MPI takes them for machines of their own.
	export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
	expect "mpirun in an allocation, the backend mpi" 4 10.0 salloc -Q -N 2 --ntasks-per-node=2 mpirun -n 4 drun run mpi.star --backend mpi
	;;
esac
