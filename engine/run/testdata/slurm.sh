#!/bin/sh
# Ranks that a real Slurm starts: a cluster of three nodes on this machine, in
# namespaces of its own, so that it meets no other and nothing of it stays.
#   sh engine/run/testdata/slurm.sh DRUN-FOLDER     (make slurm)
set -eu

if [ "${2-}" != inside ]; then
	need="slurm-wlm munge openmpi-bin"
	if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null || ! command -v mpirun >/dev/null; then
		if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
			echo "Slurm is not tried: it needs apt-get install $need"
			exit 0
		fi
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null
	fi
	if [ "$(id -u)" != 0 ]; then
		echo "Slurm is not tried: its daemons need root"
		exit 0
	fi
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	trap 'exit 1' HUP INT TERM
	SLURM_TRY=$folder timeout -k 3 300 unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc sh "$0" "$(realpath "$1")" inside
	exit
fi

cd "$SLURM_TRY"
ip link set lo up
ip link add slurm0 type veth peer name slurm1 # Slurm looks up no address where there is only loopback
ip addr add 10.98.0.1/24 dev slurm0
ip link set slurm0 up
ip link set slurm1 up
hostname node1
printf '127.0.0.1 localhost\n10.98.0.1 node1 node2 node3\n' >hosts
mount --bind hosts /etc/hosts

mungekey --create --keyfile="$PWD/munge.key" 2>/dev/null || dd if=/dev/urandom of=munge.key bs=1024 count=1 2>/dev/null
chmod 400 munge.key
chmod 755 .
munged --force --socket="$PWD/munge" --key-file="$PWD/munge.key" --pid-file="$PWD/munged.pid" --log-file="$PWD/munged.log" --seed-file="$PWD/munged.seed" 2>/dev/null

cat >slurm.conf <<-EOF
	ClusterName=drun
	SlurmctldHost=node1
	SlurmctldPort=6817
	AuthType=auth/munge
	AuthInfo=socket=$PWD/munge
	CredType=cred/munge
	SlurmUser=root
	SlurmdUser=root
	StateSaveLocation=$PWD/state
	SlurmdSpoolDir=$PWD/spool.%n
	SlurmctldPidFile=$PWD/slurmctld.pid
	SlurmdPidFile=$PWD/slurmd.%n.pid
	SlurmctldLogFile=$PWD/slurmctld.log
	SlurmdLogFile=$PWD/slurmd.%n.log
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	MpiDefault=none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	SlurmdParameters=config_overrides
	ReturnToService=2
	NodeName=node[1-3] NodeHostname=node1 NodeAddr=10.98.0.1 Port=[17001-17003] CPUs=4 State=UNKNOWN
	PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE MaxTime=INFINITE State=UP
EOF
mkdir state
export SLURM_CONF=$PWD/slurm.conf
slurmctld
for node in node1 node2 node3; do slurmd -N $node; done
tries=0
until [ "$(sinfo -h -N -t idle 2>/dev/null | wc -l)" = 3 ]; do
	tries=$((tries + 1))
	if [ $tries -gt 300 ]; then
		sinfo || true
		tail -n 20 slurmctld.log slurmd.node1.log
		echo "Slurm's nodes do not come up"
		exit 1
	fi
	sleep 0.2
done

export PATH="$1:$PATH" HOME="$PWD" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
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
expect "srun on one node" 4 10.0 srun -N 1 --ntasks=4 drun run world.star
for round in 1 2 3; do
	expect "srun, round $round of eight ranks" 8 36.0 srun -N 2 --ntasks-per-node=4 drun run world.star
done
expect "mpirun in an allocation, two nodes" 6 21.0 salloc -Q -N 2 --ntasks-per-node=3 mpirun -x MASTER_ADDR=node1 -x MASTER_PORT=29517 -n 6 drun run world.star
expect "mpirun in an allocation, one node" 6 21.0 salloc -Q -N 1 -n 4 mpirun --oversubscribe -n 6 drun run world.star
printf '#!/bin/sh\ndrun run world.star\n' >script
expect "a batch script is one rank" 1 1.0 sh -c 'sbatch -Q -W -n 4 -o batch.out script && cat batch.out'
