# drun submit from a machine that reaches the cluster by ssh alone; run by slurm.sh. PAGE has the recipe and the commands of
# docs/schedulers.md.
cluster=$PWD
mkdir laptop shared ssh
# The server of the login node: what ssh starts finds Slurm, and drun only by its own copy.
[ -d /run/sshd ] || mkdir -p /run/sshd
for key in user host; do ssh-keygen -q -t ed25519 -N '' -f ssh/$key; done
cat >ssh/sshd.conf <<-EOF2
	Port 2222
	ListenAddress 10.98.0.1
	HostKey $cluster/ssh/host
	AuthorizedKeysFile $cluster/ssh/user.pub
	StrictModes no
	PasswordAuthentication no
	PidFile $cluster/ssh/pid
	MaxStartups 100
	SetEnv SLURM_CONF=$SLURM_CONF
EOF2
cat >ssh/config <<-EOF2
	Host hpc far
	  HostName 10.98.0.1
	  Port 2222
	  IdentitiesOnly yes
	  UserKnownHostsFile $cluster/ssh/known
	  StrictHostKeyChecking accept-new
	  IdentityFile $cluster/ssh/user
	Host closed
	  HostName 10.98.0.1
	  Port 2222
	  IdentitiesOnly yes
	  UserKnownHostsFile $cluster/ssh/known
	  StrictHostKeyChecking accept-new
	  IdentityFile none
	Host off
	  HostName 10.98.0.99
	  ConnectTimeout 2
EOF2
# Each command that ssh is given is counted. The sockets of shared connections vanish with this namespace.
mount -t tmpfs none /mnt
export TMPDIR=/mnt
cat >ssh/counted <<-EOF2
	#!/bin/sh
	printf '%s' "\$*" | tr '\n' ' ' | sed 's/\$/\n/' >>$cluster/ssh/calls
	exec ssh -F $cluster/ssh/config "\$@"
EOF2
chmod +x ssh/counted
$(command -v sshd || echo /usr/sbin/sshd) -E "$cluster/ssh/log" -f ssh/sshd.conf
export DRUN_SSH=$cluster/ssh/counted DRUN_TARGETS=$cluster/laptop/targets.toml
sed "s|SHARED|$cluster/shared/drun|" "$PAGE/targets.toml" >laptop/targets.toml
cp "$PAGE/train.star" laptop
cd laptop
export SLURM_CONF=/nowhere # the submitter's machine knows no Slurm

wrong() { # CODE WORDS COMMAND…
	code=$1 words=$2 got=0
	shift 2
	"$@" >out 2>&1 || got=$?
	[ $got = $code ] && grep -q -e "$words" out || fail "$words: $got from $*"
}
drun run train.star -n 4 --name undisturbed --home undisturbed >undisturbed.out 2>&1

# The page's commands, within some seconds.
start=$(date +%s%3N)
sh -e "$PAGE/commands" >out 2>&1 || fail "the page's commands"
cat out
grep -q 'weights: done' out || true
drun jobs wait --all >>out 2>&1 || fail "the run is not done"
called() { grep -c -e "$1" "$cluster/ssh/calls" || true; }
[ "$(called 'fail scheduler')" = 1 ] && [ "$(called 'sbatch --parsable')" = 1 ] && [ "$(called 'mv -T')" = 1 ] || fail "the commands of one job"
[ "$(grep -c 'Accepted publickey' "$cluster/ssh/log")" = 1 ] || { cat "$cluster/ssh/log"; fail "connections of one job"; }
echo "ok the page's commands ($(($(date +%s%3N) - start)) ms)"
drun metrics weights --csv >/dev/null 2>&1 || true
same() { # A B: two files have the same last lines of the ranks
	[ "$(sed -n 's/.*rank 3 of 4 .*: step 600/step 600/p' "$1" | tail -n 1)" = "$(sed -n 's/.*rank 3 of 4 .*: step 600/step 600/p' "$2" | tail -n 1)" ] || fail "the bits of $2 are not those of $1"
}
same undisturbed.out out
drun show weights | grep -q ': done' || fail "its run is not here"

# The sweep of the page is that of this machine, to the bit; repeated, it runs nothing.
drun sweep train.star -p steps=100,200,300 --home here --json >/dev/null 2>out || fail "the sweep here"
sh -e "$PAGE/sweep" >out 2>&1 || fail "the page's sweep"
cat out
for home in here .drun; do
	drun sql --home $home "select text from logs where text like 'rank 0 of 1%' or text like 'rank 0 of 2%' order by 1" | sed 's/ of [12] on node.*step/ step/' | sort >bits.$home
done
[ "$(grep -c 'step [123]00' bits.here)" = 3 ] && cmp bits.here bits..drun || fail "the bits of the sweep"
sh -e "$PAGE/sweep" 2>&1 | grep -q '3 cells, finished before' || fail "the sweep runs again"
echo "ok the page's sweep"

# Slurm interrupts the job in the midst of the run, as when its time is over: it is requeued, and goes on with the same bits.
sed -e 's/^    for step in/    first = state["step"] == 0\n&/' -e 's/^        state\["step"\] = step/&\n        for _ in range(1000000000 if first and step == 100 else 0):\n            if run.should_stop():\n                break/' train.star >waits.star
drun submit hpc waits.star -n 2 --nnodes 2 --name long >out 2>&1 || fail "a job with little time"
slurm() { SLURM_CONF=$cluster/../slurm.conf "$@"; }
waitFor "it runs, and its run is followed" 40 sh -c 'drun jobs | grep "running.*long.*on node" && drun runs | grep "long *running"'
job=$(slurm squeue -h -o %i -n long)
slurm scancel --signal=TERM $job
waitFor "it is interrupted, and waits again" 60 sh -c 'drun jobs | grep "pending.*long.*taken back"'
drun runs | grep -q 'long *interrupted' || fail "the run is not interrupted"
slurm scontrol update JobId=$job StartTime=now+3
drun logs -f long >out 2>&1 || fail "its logs"
drun jobs wait long >>out 2>&1 || fail "it is not done"
same undisturbed.out out
drun show long | grep -q 'slurm_job' || fail "the run has no job"
echo "ok it goes on with the same bits"

# The checkpoints follow when they are asked for.
drun pull hpc long >out 2>&1 || fail "drun pull"
drun checkpoints verify long >out 2>&1 || fail "its checkpoints"
echo "ok its checkpoints are here"

# The submitter's machine is cut off, and loses nothing.
cat >slow.star <<'EOF2'
def main():
    x = tensor.randn([300, 300])
    for step in range(1000000000):
        for _ in range(20):
            x.matmul(x)
        run.log(loss = 1.0 / (1 + step), step = step)
        if run.should_stop():
            break
EOF2
start=$(date +%s%3N)
drun submit hpc slow.star --name cut >out 2>&1 || fail "a job"
handed=$(date +%s%3N)
points() { drun sql --home "$1" "select coalesce(sum(count), 0) from run_metrics m join runs r on r.id = m.run where r.name = 'cut'" | tail -n 1; }
waitFor "points arrive while it runs" 60 sh -c 'drun metrics cut --csv | grep -q loss'
step=$(drun sql "select cast(unixepoch(min(p.time), 'subsec') * 1000 as integer) from runs r join points p on p.run = r.id where r.name = 'cut'" | tail -n 1)
echo "ok handed over in $((handed - start)) ms, its first step after $((step - start)) ms, and here after $(($(date +%s%3N) - start)) ms"
began=$(stat -c %.3Y "$cluster"/shared/drun/jobs/"$(drun sql "select json_extract(spec, '$.folder') from jobs j join runs r on r.id = j.run where r.name = 'cut'" | tail -n 1 | sed 's|.*/||')"/output | tr -d .)
echo "ok beyond Slurm's own $((began - handed)) ms, from submit to the first step: $((step - start - began + handed)) ms"
pgrep sshd | xargs kill -STOP # as a network that is gone: no connection ends
waitFor "the login node is missed" 90 sh -c 'drun jobs | grep "running.*cut.*not known since"'
drun runs | grep -q 'cut *running' || fail "it does not count as running"
wrong 3 'hpc cannot be reached' drun jobs cancel cut # and it is not to end
there=$(points "$cluster/shared/drun/home")
[ "$there" -gt "$(points .drun)" ] || sleep 2
pgrep sshd | xargs kill -CONT
slurm scancel --signal=USR1 -n cut
drun jobs wait cut >out 2>&1 || fail "the run that was cut off"
[ "$(points .drun)" = "$(points "$cluster/shared/drun/home")" ] && [ "$(points .drun)" -ge "$there" ] || fail "points are lost"
echo "ok cut off, and no point lost"

# What the ranks do, as the page asks for it: one waits for the other.
cat >waits-for.star <<'EOF2'
def main():
    for _ in range(100000000000 if dist.rank() == 1 else 0):
        pass
    dist.barrier()
EOF2
drun submit hpc waits-for.star -n 2 --name stuck --timeout 10m >out 2>&1 || fail "a job that waits"
waitFor "it runs, and its run is here" 60 sh -c 'drun runs | grep "stuck *running"'
drun ui --port 0 >ui.out 2>&1 & ui=$!
waitFor "the pages" 30 grep -q http ui.out
page=$(grep -o 'http://[^ ]*' ui.out | head -n 1)
curl -s -L -c jar -b jar -o /dev/null "$page"
waitFor "its page has what the ranks do" 40 sh -c "curl -s -b jar '$(echo "$page" | cut -d/ -f1-3)/api/v1/runs/stuck/ranks' | tee out | tr -d ' ' | grep '\"live\":true.*barrier'"
kill $ui
drun stop stuck >out 2>&1 || grep -q "hint: drun jobs cancel stuck" out || fail "the hint of drun stop"
drun jobs cancel stuck >out 2>&1
drun jobs wait stuck >out 2>&1 || grep -q 'stuck is cancelled' out || fail "the run that waits"

# Ended by somebody else, and by drun.
for how in elsewhere here; do
	drun submit hpc waits.star --name $how >out 2>&1 || fail "a job to be ended"
	waitFor "a job to be ended $how runs" 40 sh -c "drun jobs | grep 'running.*$how'"
	if [ $how = here ]; then drun jobs cancel here; by='drun jobs cancel'; else slurm scancel -n elsewhere; by=scancel; fi
	wrong 130 "run $how is cancelled: by $by" drun jobs wait $how
	drun runs | grep -q "$how *interrupted" || fail "its run"
done
drun submit hpc waits.star --name early --partition all >out 2>&1 || fail "a job"
drun jobs cancel early >out 2>&1
wrong 130 'early is cancelled: by drun jobs cancel' drun jobs wait early
echo "ok ended"

# A batch script without srun in two nodes.
cat >../shared/batch <<-EOF2
	#!/bin/sh
	cd $cluster/laptop && drun run train.star --home alone
EOF2
slurm sbatch -Q -W -N 2 -o "$cluster/shared/batch.out" ../shared/batch || true
grep -q 'this Slurm job has 2 nodes, and without srun the run uses only this one' ../shared/batch.out || { cat ../shared/batch.out; fail "a batch script without srun"; }

# What is wrong is said in words, and nothing is left.
cat >>targets.toml <<-EOF2

	[closed]
	kind = "slurm"
	host = "closed"
	folder = "$cluster/shared/drun"
	[off]
	kind = "slurm"
	host = "off"
	folder = "$cluster/shared/drun"
	[full]
	kind = "slurm"
	host = "far"
	folder = "$cluster/shared/full"
	[old]
	kind = "slurm"
	host = "far"
	folder = "$cluster/shared/old"
	drun = "$cluster/shared/olddrun"
	[fresh]
	kind = "slurm"
	host = "hpc"
	folder = "$cluster/shared/fresh"
	setup = "exit 7"
	[nowhere]
	kind = "slurm"
	host = "far"
	folder = "/proc/none"
	[alien]
	kind = "slurm"
	host = "far"
	folder = "$cluster/shared/alien"
EOF2
# More nodes than there are: Slurm takes the job, and never starts it.
drun submit hpc train.star --nnodes 7 --name large >out 2>&1 || true
waitFor "too many nodes are told" 40 sh -c 'drun jobs | tee out | grep -E "pending.*large.*(nodes|--nnodes)"'
drun jobs cancel large >>out 2>&1
wrong 130 'run large is cancelled' drun jobs wait large
drun submit hpc train.star -n 64 --name wide >out 2>&1 || true
waitFor "too many cores are told" 40 sh -c 'drun jobs | tee out | grep "pending.*wide.*-n"'
drun jobs cancel wide >>out 2>&1
wrong 1 'run early2 is failed' drun submit fresh train.star --name early2 --wait # where no run has begun yet

jobs=$(drun jobs --all | wc -l)
mkdir ../shared/full
mount -t tmpfs -o size=1m none ../shared/full
printf '#!/bin/sh\necho "{\\"version\\": \\"v0.1\\"}"\n' >../shared/olddrun
chmod +x ../shared/olddrun
wrong 2 'Slurm refuses the job: .*partition' drun submit hpc train.star --partition gpus
grep -q 'hint: change --partition' out || fail "the hint"
wrong 2 'Slurm refuses the job: ' drun submit hpc train.star --constraint gold
wrong 3 'closed cannot be reached: .*Permission denied' drun submit closed train.star
grep -q 'drun answers no question for a password' out || fail "the hint"
wrong 3 'off cannot be reached' drun submit off train.star
wrong 7 'there is no room: ' drun submit full train.star
wrong 2 "olddrun there is v0.1, and this drun" drun submit old train.star
wrong 2 'nowhere: the folder /proc/none cannot be made or written there' drun submit nowhere train.star
wrong 2 'hpc has no such folder' drun submit hpc train.star --data /none
wrong 2 'is taken' drun submit hpc train.star --name weights
wrong 2 'no such parameter' drun submit hpc train.star -p step=7
wrong 2 'the name weights is taken there' drun submit hpc train.star --name weights --home other
fake() { # COMMAND SCRIPT: puts a script in a command's place
	printf "#!/bin/sh\n%s\n" "$2" >"../shared/$1"
	chmod +x "../shared/$1"
	mount --bind "../shared/$1" "$(realpath "$(command -v "$1")")"
}
real() { umount "$(realpath "$(command -v "$1")")"; }
mkdir ../shared/data && echo 1 >../shared/data/a.csv && (cd ../shared/data && sha256sum a.csv) >sums
echo 2 >../shared/data/a.csv
wrong 2 'hpc: the data there is not what --sums says: a.csv: FAILED' drun submit hpc train.star --data "$cluster/shared/data" --sums sums
echo nothing >nosums
wrong 2 'the data there is not what --sums says: .*no properly formatted' drun submit hpc train.star --data "$cluster/shared/data" --sums nosums
fake uname "echo riscv64"
wrong 2 "alien has processors of the kind riscv64" drun submit alien train.star
real uname
echo 1 >data.csv
fake sha256sum "echo files/data.csv: FAILED >&2; exit 1"
wrong 7 "what arrived is not what was sent: files/data.csv: FAILED" drun submit hpc train.star --copy data.csv
real sha256sum
[ "$(drun jobs --all | wc -l)" = "$jobs" ] || fail "jobs are left"
[ "$(drun sql "select count(*) from runs where status = 'pending'" | tail -n 1)" = 0 ] || fail "runs are left"
[ "$(ls ../shared/drun/jobs | wc -l)" = "$(drun sql "select count(distinct json_extract(spec, '$.folder')) from jobs where target = 'hpc'" | tail -n 1)" ] || fail "folders are left"
echo "ok what is wrong is said"
echo 1 >../shared/data/a.csv
drun submit hpc train.star --data "$cluster/shared/data" --sums sums --name same --wait >out 2>&1 || fail "data that is what its sums say"
echo "ok data and its sums"
drun jobs --all
