package rendezvous

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Nodes is a node's place among several nodes that each start their own ranks.
type Nodes struct {
	Count, Index int
	Procs        int    // ranks that this node starts
	Address      string // host:port of the rendezvous; "" for one node
}

// PET reads the variables that stand for torchrun's flags, as PyTorchJob sets them:
// PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT or
// PET_RDZV_ENDPOINT. found is false where there are none, or where torchrun itself has
// read them and started this process. Errors are of type [EnvironError].
func PET(env Lookup, port int) (n Nodes, found bool, err error) {
	nodes, procs := first(env, "PET_NNODES"), first(env, "PET_NPROC_PER_NODE")
	if nodes == "" && procs == "" || first(env, "LOCAL_RANK") != "" {
		return n, false, nil
	}
	number := func(name, text string, least, most, otherwise int) int {
		if text == "" || err != nil {
			return otherwise
		}
		x, convErr := strconv.Atoi(text)
		if convErr != nil || x < least || x > most {
			err = &EnvironError{name, fmt.Sprintf("is %q: want a whole number from %d to %d", text, least, most)}
		}
		return x
	}
	if low, high, elastic := strings.Cut(nodes, ":"); elastic && low == high {
		nodes = low
	}
	n.Count = number("PET_NNODES", nodes, 1, 1<<20, 1)
	n.Procs = number("PET_NPROC_PER_NODE", procs, 1, 1<<20, 1)
	n.Index = number("PET_NODE_RANK", first(env, "PET_NODE_RANK"), 0, n.Count-1, 0)
	if world := first(env, "WORLD_SIZE"); err == nil && world != "" && world != strconv.Itoa(n.Count) && world != strconv.Itoa(n.Count*n.Procs) {
		err = &EnvironError{"PET_NNODES", fmt.Sprintf("is %q and PET_NPROC_PER_NODE %q, which contradicts WORLD_SIZE %q", nodes, procs, world)}
	}
	if err != nil || n.Count == 1 {
		return n, true, err
	}
	if first(env, "PET_NODE_RANK") == "" {
		return n, true, &EnvironError{"PET_NODE_RANK", fmt.Sprintf("is not set, though PET_NNODES is %d: which of the nodes is this?", n.Count)}
	}
	host, own := firstOf(env, "PET_MASTER_ADDR", "MASTER_ADDR"), firstOf(env, "PET_MASTER_PORT", "MASTER_PORT")
	if endpoint := first(env, "PET_RDZV_ENDPOINT"); endpoint != "" && first(env, "PET_MASTER_ADDR") == "" {
		host, own = endpoint, ""
		if h, p, splitErr := net.SplitHostPort(endpoint); splitErr == nil {
			host, own = h, p
		}
	}
	if host == "" {
		return n, true, &EnvironError{"PET_MASTER_ADDR", fmt.Sprintf("is not set, though PET_NNODES is %d: where do the nodes meet?", n.Count)}
	}
	n.Address = net.JoinHostPort(host, strconv.Itoa(number("PET_MASTER_PORT", own, 1, 65535, port)))
	return n, true, err
}

func firstOf(env Lookup, names ...string) string {
	for _, name := range names {
		if v := first(env, name); v != "" {
			return v
		}
	}
	return ""
}
