package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/cluster"
	"drun/engine/rendezvous"
)

// joinFlags are the flags that say which of several nodes this is.
type joinFlags struct {
	nodes               string
	node, port          int
	meet, host          string
	id, backend, conf   string
	standalone, elastic bool
	secretFile          string
	insecure            bool
	hosts               string
	launched            bool   // by another drun's --hosts, which speaks on standard input
	given               string // the secret, from there
}

// masterPort is the default port of the rendezvous, as torchrun's.
const masterPort = 29500

func (j *joinFlags) add(f *pflag.FlagSet) {
	f.StringVar(&j.nodes, "nnodes", "1", "number of nodes; start drun run on each of them. `N or MIN:MAX`: with MIN:MAX nodes may be lost and may join, see --max-restarts")
	f.IntVar(&j.node, "node-rank", 0, "number of this node, from 0")
	f.StringVar(&j.meet, "rdzv", "", "`host:port` on which node 0 listens")
	f.StringVar(&j.host, "master-addr", "", "the `host` of --rdzv")
	f.IntVar(&j.port, "master-port", masterPort, "the `port` of --rdzv")
	f.StringVar(&j.id, "rdzv-id", "", "`name` that all nodes of the run give, and no other run's nodes")
	f.StringVar(&j.backend, "rdzv-backend", "", "c10d: nodes need no --node-rank, the one at whose address they meet is node 0; or static")
	f.StringVar(&j.conf, "rdzv-conf", "", "`key=value,…` of join_timeout, last_call_timeout and heartbeat_timeout, in seconds, with --nnodes MIN:MAX")
	f.BoolVar(&j.standalone, "standalone", false, "one node, whatever the environment says")
	f.BoolVar(&j.elastic, "elastic-world", false, "with --nnodes MIN:MAX: the world has as many ranks as the available nodes provide, and starts again when a node joins, as torchrun's does")
	f.StringVar(&j.secretFile, "rdzv-secret-file", "", "`file` with the secret that all processes of a run share (default: $DRUN_RDZV_SECRET, or drun/secret in the configuration folder, made at first use)")
	f.StringVar(&j.hosts, "hosts", "", "start a node on each of these `hosts` by ssh, as a,b,c:4, where the number is that host's -n; the first is node 0. They need drun, and the recipe at the same place")
	f.BoolVar(&j.launched, "launched", false, "")
	_ = f.MarkHidden("launched")
	f.BoolVar(&j.insecure, "insecure", false, "let processes join without a secret; only for closed networks")
}

// normalizeJoin accepts torchrun's spellings.
func normalizeJoin(name string) string {
	switch name {
	case "rdzv-endpoint", "rdzv_endpoint":
		return "rdzv"
	case "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_conf":
		return strings.ReplaceAll(name, "_", "-")
	}
	return name
}

// ofTorchrun says what to do instead of a flag that torchrun has and drun run does not; "" if it is another.
func ofTorchrun(cmd *cobra.Command, err error) string {
	unknown := (*pflag.NotExistError)(nil)
	if cmd.Name() != "run" || !errors.As(err, &unknown) {
		return ""
	}
	return torchrunFlags[strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")]
}

var torchrunFlags = map[string]string{
	"conda-env":                "leave it out: drun starts recipes, not Python",
	"local-addr":               "leave it out: nodes meet where --rdzv says",
	"local-ranks-filter":       "--rank-output 0,2 shows the output of these ranks alone",
	"log-line-prefix-template": "leave it out: lines begin with their rank; drun logs --json has all about them",
	"m":                        "a recipe is a file: drun run RECIPE.star",
	"module":                   "a recipe is a file: drun run RECIPE.star",
	"monitor-interval":         "leave it out: drun hears of a rank's end at once",
	"no-python":                "leave it out: drun runs recipes, not programs",
	"numa-binding":             "leave it out, or start drun beneath numactl",
	"role":                     "leave it out; --tag marks a run",
	"run-path":                 "leave it out: drun runs recipes, not programs",
	"signals-to-handle":        "leave it out: drun passes on the signals that end a run, or stop it",
	"start-method":             "leave it out: each rank is a process of its own",
	"virtual-local-rank":       "leave it out: dist.local_rank() is a rank's number on its node",
}

// joining reports whether this process is one of several of a run, according to flags or to the variables of
// torchrun, srun or mpirun. Flags take precedence. Variables may change nproc.
func (j *joinFlags) joining(cmd *cobra.Command, nproc *int) (*cluster.Joining, error) {
	f := cmd.Flags()
	byHand := false
	for _, name := range []string{"nnodes", "node-rank", "rdzv", "master-addr", "master-port", "rdzv-id", "rdzv-backend", "rdzv-conf", "elastic-world"} {
		byHand = byHand || f.Changed(name)
	}
	if j.standalone {
		// As torchrun does, it ignores where nodes would meet.
		if j.nodes != "1" && j.nodes != "1:1" || j.node > 0 || j.elastic {
			return nil, usage("leave it out where there are several nodes", "--standalone is for one node, which needs no other flag of several")
		}
		return nil, nil
	}
	if byHand {
		return j.byHand(f)
	}
	n, found, err := rendezvous.PET(os.LookupEnv, masterPort)
	switch {
	case err != nil:
		return nil, err
	case found:
		if !f.Changed("nproc") {
			*nproc = n.Procs
		}
		if n.Count == 1 {
			return nil, nil
		}
		if text := os.Getenv("PET_MAX_RESTARTS"); text != "" && !f.Changed("max-restarts") {
			if err := f.Set("max-restarts", text); err != nil {
				return nil, &rendezvous.EnvironError{Name: "PET_MAX_RESTARTS", Problem: fmt.Sprintf("is %q: want a whole number", text)}
			}
		}
		secret, err := j.secret(n.Count)
		out := &cluster.Joining{Address: n.Address, Secret: secret, ID: n.ID, Index: n.Index, Count: n.Count}
		if n.Least > 0 {
			e := defaultElastic(f)
			e.Min, out.Elastic = n.Least, &e
		}
		return out, err
	}
	l := rendezvous.DetectLauncher(os.LookupEnv)
	if l == nil {
		if nodes := os.Getenv("SLURM_JOB_NUM_NODES"); nodes != "" && nodes != "1" && os.Getenv("SLURM_STEP_NUM_TASKS") == "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: this Slurm job has %s nodes, and without srun the run uses only this one: srun --ntasks-per-node=1 drun run … starts a part of it on each\n", nodes)
		}
		if index := os.Getenv("JOB_COMPLETION_INDEX"); index != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: this is pod %s of an indexed job and runs alone: for one run of all its pods give --nnodes and --rdzv, or set WORLD_SIZE to their number, and MASTER_ADDR and MASTER_PORT\n", index)
		}
		return nil, nil
	}
	place, address, err := rendezvous.FromEnviron(l.Env)
	if wrong := (*rendezvous.EnvironError)(nil); errors.As(err, &wrong) {
		wrong.Name = l.Name(wrong.Name)
	}
	if err != nil {
		return nil, err
	}
	out := &cluster.Joining{Address: address, Index: place.Rank, Count: place.WorldSize}
	switch many := f.Changed("nproc"); {
	case many && !l.OnePerNode:
		return nil, usage("leave out -n, because every rank is started separately; or have one process started on each node, as srun --ntasks-per-node=1 does; or tell each by --nnodes, --node-rank and --rdzv",
			"-n says how many ranks to start, but %s and %s say that this process is rank %d of %d", l.Name("RANK"), l.Name("WORLD_SIZE"), place.Rank, place.WorldSize)
	case !many:
		out.Placement = &place
	}
	out.Secret, err = j.secret(place.WorldSize)
	return out, err
}

// defaultElastic is how an elastic run waits unless --rdzv-conf says otherwise.
func defaultElastic(f *pflag.FlagSet) cluster.Elastic {
	timeout, err := f.GetDuration("timeout")
	if err != nil || timeout <= 0 {
		timeout = 5 * time.Minute
	}
	return cluster.Elastic{JoinTimeout: timeout, LastCall: 30 * time.Second, Heartbeat: 2 * time.Second}
}

// configure parses --rdzv-conf.
func (j *joinFlags) configure(e *cluster.Elastic) error {
	for _, text := range strings.Split(j.conf, ",") {
		if text == "" {
			continue
		}
		name, value, _ := strings.Cut(text, "=")
		to, known := map[string]*time.Duration{"join_timeout": &e.JoinTimeout, "last_call_timeout": &e.LastCall, "heartbeat_timeout": &e.Heartbeat}[name]
		if !known {
			return usage("drun has join_timeout, last_call_timeout and heartbeat_timeout", "--rdzv-conf %s: there is no %q", j.conf, name)
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds >= 0 && seconds < 1e6) || seconds == 0 && to != &e.LastCall {
			return usage("for example --rdzv-conf join_timeout=600", "--rdzv-conf %s: %s wants a number of seconds, not %q", j.conf, name, value)
		}
		*to = time.Duration(seconds * float64(time.Second))
	}
	return nil
}

func (j *joinFlags) byHand(f *pflag.FlagSet) (*cluster.Joining, error) {
	least, nodes, err := rendezvous.ParseNodes(j.nodes)
	if err != nil {
		return nil, usage("for example --nnodes 2, or --nnodes 1:4", "--nnodes %s: %v", j.nodes, err)
	}
	numbered, err := rendezvous.Backends(j.backend)
	if err != nil {
		return nil, usage("leave it out, or give c10d", "--rdzv-backend %v", err)
	}
	elastic := (*cluster.Elastic)(nil)
	switch {
	case least > 0 && j.backend == "static":
		return nil, usage("use --rdzv-backend c10d, or leave it out", "--rdzv-backend static is for a fixed number of nodes, not --nnodes %s", j.nodes)
	case least > 0:
		e := defaultElastic(f)
		e.Min, e.Resize, elastic, numbered = least, j.elastic, &e, false
		if err := j.configure(elastic); err != nil {
			return nil, err
		}
	case j.elastic:
		return nil, usage("for example --nnodes 1:4", "--elastic-world needs --nnodes MIN:MAX: a fixed number of nodes has a fixed world")
	case j.conf != "":
		return nil, usage("for example --nnodes 1:4", "--rdzv-conf is for --nnodes MIN:MAX: a fixed number of nodes waits as long as --timeout says")
	}
	if f.Changed("node-rank") && (j.node < 0 || j.node >= nodes) {
		return nil, usage("", "--node-rank %d: with --nnodes %s it must be from 0 to %d", j.node, j.nodes, nodes-1)
	}
	if nodes == 1 && elastic == nil {
		return nil, nil
	}
	index := j.node
	if !f.Changed("node-rank") {
		pod := os.Getenv("JOB_COMPLETION_INDEX") // in Kubernetes' indexed jobs
		number, err := strconv.Atoi(pod)
		switch {
		case numbered && pod != "" && (err != nil || number < 0 || number >= nodes):
			return nil, usage("--nnodes is the number of the job's completions", "JOB_COMPLETION_INDEX is %q: with --nnodes %s it must be from 0 to %d", pod, j.nodes, nodes-1)
		case numbered && pod == "":
			return nil, usage("--node-rank 0 on the first node, 1 on the next, …; or --rdzv-backend c10d, which numbers them", "--nnodes %s needs --node-rank: the number of this node", j.nodes)
		case numbered:
			index = number
		default:
			index = cluster.Unnumbered
		}
	}
	address := j.meet
	switch {
	case address != "" && j.host != "":
		return nil, usage("give one of them", "--rdzv and --master-addr both give the address of node 0")
	case address == "" && j.host == "":
		return nil, usage("for example --rdzv 10.0.0.1:29500, with an address of node 0", "--nnodes %s needs --rdzv: the address on which node 0 listens", j.nodes)
	case address == "":
		address = net.JoinHostPort(j.host, strconv.Itoa(j.port))
	}
	if scheme, rest, has := strings.Cut(address, "://"); has && scheme == "tcp" { // as PyTorch's init_method
		address = rest
	} else if has {
		return nil, usage("node 0 listens: --rdzv host:port, or tcp://host:port", "--rdzv %s: nodes do not meet by %s://", address, scheme)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil { // without a port
		host, port = address, strconv.Itoa(j.port)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return nil, usage("for example --rdzv 10.0.0.1:29500", "port %s: it must be a number from 1 to 65535", port)
	}
	if host == "" {
		return nil, usage("for example --rdzv 10.0.0.1:29500", "--rdzv %s: the host is missing", address)
	}
	secret, err := j.secret(nodes)
	return &cluster.Joining{Address: net.JoinHostPort(host, port), Secret: secret, ID: j.id, Index: index, Count: nodes, Elastic: elastic}, err
}

// secret returns what only the processes of the run know.
func (j *joinFlags) secret(processes int) (text string, err error) {
	switch {
	case j.given != "":
		return j.given, nil
	case j.insecure && j.secretFile != "":
		return "", usage("give one of them", "--insecure and --rdzv-secret-file contradict each other")
	case j.insecure:
		return "", nil
	case j.secretFile != "":
		text, err = rendezvous.ReadSecret(j.secretFile)
	case processes == 1:
		return rand.Text(), nil // no other process will join
	case os.Getenv("DRUN_RDZV_SECRET") != "":
		return os.Getenv("DRUN_RDZV_SECRET"), nil
	default:
		text, err = rendezvous.OwnSecret()
	}
	if err != nil {
		return "", usage(cluster.SecretHint, "the secret that the processes of a run share: %v", err)
	}
	return text, nil
}
