package rendezvous

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"drun/internal/exit"
)

// An EnvironError says which variable keeps a process from joining a world.
type EnvironError struct{ Name, Problem string }

func (e *EnvironError) Error() string       { return e.Name + " " + e.Problem }
func (e *EnvironError) ExitCode() exit.Code { return exit.Usage }

// FromEnviron reads a rank's place, and the address (host:port) of the rendezvous, from the variables that torchrun
// and other launchers set: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; and, if they are set, LOCAL_RANK,
// LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE. Variables that are not set are [Unknown] in the place until all
// ranks have joined and [AssignRanks] fills them in. lookup is os.LookupEnv. Errors are of type [EnvironError].
func FromEnviron(lookup func(string) (string, bool)) (p Placement, address string, err error) {
	for _, v := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		if text, _ := lookup(v); text == "" {
			return Placement{}, "", &EnvironError{v, "is not set: a rank that is started by itself needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}
		}
	}
	of := ""
	number := func(name string, least, most, otherwise int) int {
		return numberIn(&err, name, first(lookup, name), least, most, otherwise, of)
	}
	p.WorldSize = number("WORLD_SIZE", 1, 1<<20, 1)
	of = fmt.Sprintf(" in a world of %d", p.WorldSize)
	p.Rank = number("RANK", 0, p.WorldSize-1, 0)
	most := func(count int) int { // the largest number below count, if count is known
		if count == Unknown {
			count = p.WorldSize
		}
		return count - 1
	}
	p.LocalSize = number("LOCAL_WORLD_SIZE", 1, p.WorldSize, Unknown)
	p.Nodes = number("GROUP_WORLD_SIZE", 1, p.WorldSize, Unknown)
	if p.LocalSize != Unknown {
		of = fmt.Sprintf(" where LOCAL_WORLD_SIZE is %d", p.LocalSize)
	}
	p.LocalRank = number("LOCAL_RANK", 0, most(p.LocalSize), Unknown)
	if of = fmt.Sprintf(" in a world of %d", p.WorldSize); p.Nodes != Unknown {
		of = fmt.Sprintf(" where GROUP_WORLD_SIZE is %d", p.Nodes)
	}
	p.NodeRank = number("GROUP_RANK", 0, most(p.Nodes), Unknown)
	of = ""
	port := number("MASTER_PORT", 1, 65535, 0)
	if err != nil {
		return Placement{}, "", err
	}
	host, _ := lookup("MASTER_ADDR")
	return p, net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// Nodes is a node's place among several nodes that each start their own ranks.
type Nodes struct {
	Count   int    // if Least is fewer, the maximum
	Least   int    // 0: there are always Count
	Index   int    // Unknown if not given
	Procs   int    // ranks that this node starts
	Address string // host:port of the rendezvous; "" for one node
	ID      string // of the run
}

// MaxNodes limits how many nodes a user may ask for; a world has a process for each.
const MaxNodes = 1 << 20

// ParseNodes parses N or MIN:MAX. least is 0 for N.
func ParseNodes(text string) (least, most int, err error) {
	low, high, elastic := strings.Cut(text, ":")
	if !elastic {
		high = low
	}
	least, lowErr := strconv.Atoi(low)
	most, highErr := strconv.Atoi(high)
	switch {
	case lowErr != nil || highErr != nil:
		return 0, 0, errors.New("want a number of nodes, or MIN:MAX")
	case least < 1 || most > MaxNodes:
		return 0, 0, fmt.Errorf("the number of nodes must be from 1 to %d", MaxNodes)
	case least > most:
		return 0, 0, fmt.Errorf("the minimum of %d is more than the maximum of %d", least, most)
	case !elastic:
		return 0, most, nil
	}
	return least, most, nil
}

// Backends interprets torchrun's name of a rendezvous backend: numbered reports whether each node must say which
// number it has.
func Backends(name string) (numbered bool, err error) {
	switch name {
	case "c10d":
		return false, nil
	case "static", "":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither c10d nor static: node 0 of a run serves the rendezvous itself, and drun uses no other service", name)
}

// Procs parses how many ranks a node starts, as torchrun's --nproc-per-node: a number, cpu for one per core, gpu
// for one per GPU, or auto: gpu if there are any, otherwise cpu.
func Procs(text string) (int, error) {
	switch gpus := gpus(); {
	case text == "gpu" && gpus == 0:
		return 0, errors.New("there is no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides it")
	case text == "gpu", text == "auto" && gpus > 0:
		return gpus, nil
	case text == "auto", text == "cpu":
		return runtime.NumCPU(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of ranks, auto, cpu or gpu", text)
	}
	return n, nil
}

// gpus counts the GPUs that processes here may use.
func gpus() int {
	list, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is valid
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		n := 0
		for _, name := range strings.Split(visible, ",") {
			if name = strings.TrimSpace(name); name == "" || name == "-1" {
				break // CUDA ignores what follows
			}
			n++
		}
		return min(n, len(list))
	}
	return len(list)
}

// PET reads the variables that stand for torchrun's flags, as PyTorchJob sets them: PET_NNODES, PET_NODE_RANK,
// PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT or PET_RDZV_ENDPOINT, PET_RDZV_BACKEND and PET_RDZV_ID.
// found is false if there are none, or if torchrun itself has read them and started this process. Errors are of
// type [EnvironError].
func PET(env Lookup, port int) (n Nodes, found bool, err error) {
	nodes, procs := first(env, "PET_NNODES"), first(env, "PET_NPROC_PER_NODE")
	if nodes == "" && procs == "" || first(env, "LOCAL_RANK") != "" {
		return n, false, nil
	}
	if low, high, elastic := strings.Cut(nodes, ":"); elastic && low == high {
		nodes = low
	}
	n.Count, n.Procs, n.ID = 1, 1, first(env, "PET_RDZV_ID")
	if nodes != "" {
		if n.Least, n.Count, err = ParseNodes(nodes); err != nil {
			return n, true, &EnvironError{"PET_NNODES", fmt.Sprintf("is %q: %v", nodes, err)}
		}
	}
	if procs != "" {
		if n.Procs, err = Procs(procs); err == nil && n.Procs < 1 {
			err = errors.New("a node has at least 1 rank")
		}
		if err != nil {
			return n, true, &EnvironError{"PET_NPROC_PER_NODE", fmt.Sprintf("is %q: %v", procs, err)}
		}
	}
	numbered, err := Backends(first(env, "PET_RDZV_BACKEND"))
	if err != nil {
		return n, true, &EnvironError{"PET_RDZV_BACKEND", err.Error()}
	}
	numbered = numbered && n.Least == 0
	place := "PET_NODE_RANK"
	if numbered && first(env, place) == "" && first(env, "JOB_COMPLETION_INDEX") != "" {
		place = "JOB_COMPLETION_INDEX" // if an indexed job's manifest does not pass it on
	}
	n.Index = numberIn(&err, place, first(env, place), 0, n.Count-1, 0, "")
	if !numbered && first(env, place) == "" {
		n.Index = Unknown
	}
	if world := first(env, "WORLD_SIZE"); err == nil && n.Least == 0 && world != "" && world != strconv.Itoa(n.Count) && world != strconv.Itoa(n.Count*n.Procs) {
		err = &EnvironError{"PET_NNODES", fmt.Sprintf("is %q and PET_NPROC_PER_NODE %q, which contradicts WORLD_SIZE %q", nodes, procs, world)}
	}
	if err != nil || n.Count == 1 {
		return n, true, err
	}
	if numbered && first(env, place) == "" {
		return n, true, &EnvironError{"PET_NODE_RANK", fmt.Sprintf("is not set, though PET_NNODES is %d: which of the nodes is this?", n.Count)}
	}
	host, own := cmp.Or(first(env, "PET_MASTER_ADDR"), first(env, "MASTER_ADDR")), cmp.Or(first(env, "PET_MASTER_PORT"), first(env, "MASTER_PORT"))
	if endpoint := first(env, "PET_RDZV_ENDPOINT"); endpoint != "" && first(env, "PET_MASTER_ADDR") == "" {
		host, own = endpoint, ""
		if h, p, splitErr := net.SplitHostPort(endpoint); splitErr == nil {
			host, own = h, p
		}
	}
	if host == "" {
		return n, true, &EnvironError{"PET_MASTER_ADDR", fmt.Sprintf("is not set, though PET_NNODES is %d: where do the nodes meet?", n.Count)}
	}
	n.Address = net.JoinHostPort(host, strconv.Itoa(numberIn(&err, "PET_MASTER_PORT", own, 1, 65535, port, "")))
	return n, true, err
}

// numberIn reads the number in the text of a variable, or sets err unless it is set already.
func numberIn(err *error, name, text string, least, most, otherwise int, of string) int {
	if text == "" || *err != nil {
		return otherwise
	}
	n, bad := strconv.Atoi(text)
	if bad != nil || n < least || n > most {
		*err = &EnvironError{name, fmt.Sprintf("is %q: want a whole number from %d to %d%s", text, least, most, of)}
		return otherwise
	}
	return n
}
