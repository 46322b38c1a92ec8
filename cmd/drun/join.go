package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/cluster"
	"drun/engine/rendezvous"
	"drun/engine/run"
)

// joinFlags are the flags that say which of several nodes this is.
type joinFlags struct {
	nodes, node, port int
	meet, host        string
	secretFile        string
	insecure          bool
}

// masterPort is the default port of the rendezvous, as torchrun's.
const masterPort = 29500

func (j *joinFlags) add(f *pflag.FlagSet) {
	f.IntVar(&j.nodes, "nnodes", 1, "number of nodes; start drun run on each of them")
	f.IntVar(&j.node, "node-rank", 0, "number of this node, from 0")
	f.StringVar(&j.meet, "rdzv", "", "`host:port` on which node 0 listens")
	f.StringVar(&j.host, "master-addr", "", "the `host` of --rdzv")
	f.IntVar(&j.port, "master-port", masterPort, "the `port` of --rdzv")
	f.StringVar(&j.secretFile, "rdzv-secret-file", "", "`file` with the secret that all processes of a run share (default: $DRUN_RDZV_SECRET, or drun/secret in the configuration folder, made at first use)")
	f.BoolVar(&j.insecure, "insecure", false, "let processes join without a secret; only for closed networks")
}

// normalizeJoin accepts torchrun's spellings.
func normalizeJoin(name string) string {
	switch name {
	case "rdzv-endpoint", "rdzv_endpoint":
		return "rdzv"
	case "node_rank", "master_addr", "master_port":
		return name[:len(name)-5] + "-" + name[len(name)-4:]
	}
	return name
}

// joining tells whether this process is one of several of a run: by flags, or by
// the variables of torchrun, srun or mpirun. Flags win. Variables may change nproc.
func (j *joinFlags) joining(cmd *cobra.Command, nproc *int) (*cluster.Joining, error) {
	f := cmd.Flags()
	byHand := false
	for _, name := range []string{"nnodes", "node-rank", "rdzv", "master-addr", "master-port"} {
		byHand = byHand || f.Changed(name)
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
		secret, err := j.secret(n.Count)
		return &cluster.Joining{Address: n.Address, Secret: secret, Index: n.Index, Count: n.Count}, err
	}
	l := rendezvous.Found(os.LookupEnv)
	if l == nil {
		if index := os.Getenv("JOB_COMPLETION_INDEX"); index != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: this is pod %s of an indexed job and runs alone: for one run of all its pods set WORLD_SIZE to their number, and MASTER_ADDR and MASTER_PORT\n", index)
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
	if f.Changed("nproc") {
		rank, size := l.Name("RANK"), l.Name("WORLD_SIZE")
		return nil, usage("leave out -n, because every rank is started separately; or start one process on each node, with --nnodes, --node-rank and --rdzv",
			"-n says how many ranks to start, but %s and %s say that this process is rank %d of %d", rank, size, place.Rank, place.WorldSize)
	}
	secret, err := j.secret(place.WorldSize)
	return &cluster.Joining{Address: address, Secret: secret, Index: place.Rank, Count: place.WorldSize, Place: &place}, err
}

func (j *joinFlags) byHand(f *pflag.FlagSet) (*cluster.Joining, error) {
	if j.nodes < 1 || j.nodes > run.MaxRanks {
		return nil, usage("", "--nnodes %d: the number of nodes must be from 1 to %d", j.nodes, run.MaxRanks)
	}
	if j.node < 0 || j.node >= j.nodes {
		return nil, usage("", "--node-rank %d: with --nnodes %d it must be from 0 to %d", j.node, j.nodes, j.nodes-1)
	}
	if j.nodes == 1 {
		return nil, nil
	}
	if !f.Changed("node-rank") {
		return nil, usage("--node-rank 0 on the first node, 1 on the next, …", "--nnodes %d needs --node-rank: the number of this node", j.nodes)
	}
	address := j.meet
	switch {
	case address != "" && j.host != "":
		return nil, usage("give one of them", "--rdzv and --master-addr both give the address of node 0")
	case address == "" && j.host == "":
		return nil, usage("for example --rdzv 10.0.0.1:29500, with an address of node 0", "--nnodes %d needs --rdzv: the address on which node 0 listens", j.nodes)
	case address == "":
		address = net.JoinHostPort(j.host, strconv.Itoa(j.port))
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
	secret, err := j.secret(j.nodes)
	return &cluster.Joining{Address: net.JoinHostPort(host, port), Secret: secret, Index: j.node, Count: j.nodes}, err
}

// secret is what only the processes of the run know.
func (j *joinFlags) secret(processes int) (text string, err error) {
	switch {
	case j.insecure && j.secretFile != "":
		return "", usage("give one of them", "--insecure and --rdzv-secret-file contradict each other")
	case j.insecure:
		return "", nil
	case j.secretFile != "":
		text, err = rendezvous.ReadSecret(j.secretFile)
	case processes == 1:
		return rendezvous.NewToken(), nil // no other process will join
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
