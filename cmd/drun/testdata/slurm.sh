#!/bin/sh
# A real Slurm: a cluster of three nodes on this machine, in namespaces of its own, so that it meets no other and nothing
# of it stays. Runs a script in an empty folder of it, with drun in PATH. Exits with 77 where that cannot be.
#   sh cmd/drun/testdata/slurm.sh DRUN-FOLDER SCRIPT
set -eu

if [ "${3-}" != inside ]; then
	for command in slurmctld slurmd munged mpirun ip; do
		if ! command -v $command >/dev/null; then
			echo "Slurm is not installed: apt-get install slurm-wlm munge openmpi-bin iproute2"
			exit 77
		fi
	done
	if [ "$(id -u)" != 0 ] || ! unshare --mount --net --uts --ipc --pid --fork --mount-proc true; then
		echo "mounts and namespaces take root (in a container, CAP_SYS_ADMIN)"
		exit 77
	fi
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	trap 'exit 1' HUP INT TERM
	SLURM_TRY=$folder timeout -k 3 ${SLURM_LIMIT:-300} unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc sh "$0" "$(realpath "$1")" "$(realpath "$2")" inside
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
	SchedulerParameters=sched_interval=3,bf_interval=3
	SlurmdParameters=config_overrides
	ReturnToService=2
	SlurmdTimeout=${SLURMD_TIMEOUT:-300}
	KillWait=5
	NodeName=node[1-3] NodeHostname=node1 NodeAddr=10.98.0.1 Port=[17001-17003] CPUs=4 State=UNKNOWN
	PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE MaxTime=INFINITE State=UP
EOF
if [ -n "${SLURM_ACCOUNTING-}" ]; then # with slurmdbd, and associations that are enforced; the controller forgets jobs at once
	mkdir db
	mariadb-install-db --user=root --datadir="$PWD/db" --skip-test-db --auth-root-authentication-method=normal >mariadb.log 2>&1
	mariadbd --no-defaults --user=root --datadir="$PWD/db" --socket="$PWD/db.sock" --skip-networking --pid-file="$PWD/db.pid" >>mariadb.log 2>&1 &
	cat >slurmdbd.conf <<-EOF
		AuthType=auth/munge
		AuthInfo=socket=$PWD/munge
		DbdHost=node1
		DbdPort=6819
		SlurmUser=root
		StorageType=accounting_storage/mysql
		StorageHost=localhost
		StorageUser=root
		StorageLoc=slurm
		LogFile=$PWD/slurmdbd.log
		PidFile=$PWD/slurmdbd.pid
	EOF
	chmod 600 slurmdbd.conf
	cat >>slurm.conf <<-EOF
		AccountingStorageType=accounting_storage/slurmdbd
		AccountingStorageHost=node1
		AccountingStoragePort=6819
		AccountingStoragePass=$PWD/munge
		AccountingStorageEnforce=associations
		MinJobAge=2
	EOF
	export SLURM_CONF=$PWD/slurm.conf MYSQL_UNIX_PORT=$PWD/db.sock
	tries=0
	until mariadb-admin --socket="$PWD/db.sock" -u root ping >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { cat mariadb.log; exit 1; }
		sleep 0.2
	done
	slurmdbd
	until sacctmgr -i add cluster drun >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 400 ] || { cat slurmdbd.log; exit 1; }
		sleep 0.2
	done
	sacctmgr -i add account team >/dev/null
	sacctmgr -i add user root account=team >/dev/null
fi
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
mkdir work
cd work

fail() { # WORDS: shows what there is to know
	echo "FAIL $1"
	find "$SLURM_TRY/work" \( -name out -o -path '*/jobs/log' -o -path '*/jobs/*/output*' \) -exec tail -n 50 {} + || true
	drun jobs --all || true
	export SLURM_CONF=$SLURM_TRY/slurm.conf
	squeue -a && sinfo -N -o '%N %T %E' || true
	tail -n 20 "$SLURM_TRY"/slurm*.log || true
	exit 1
}
waitFor() { # NAME SECONDS COMMAND…
	name=$1 end=$(($(date +%s) + $2))
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $(date +%s) -lt $end ] || fail "$name: not in time"
		sleep 0.2
	done
	echo "ok $name"
}
. "$2"
