package rendezvous

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Lookup is os.LookupEnv, or what stands for it.
type Lookup = func(string) (string, bool)

// Found reports whether this process was started as one rank of a world: by
// RANK or WORLD_SIZE, or as a task of srun, Open MPI's mpirun or one that
// speaks PMI. The lookup it gives has torchrun's names, for [FromEnviron].
func Found(env Lookup) (Lookup, bool) {
	has := func(name string) bool { v, _ := env(name); return v != "" }
	if has("RANK") || has("WORLD_SIZE") {
		return env, true
	}
	for _, s := range schedulers {
		if n, _ := strconv.Atoi(first(env, s.size)); n > 1 && has(s.rank) {
			return s.translate(env), true
		}
	}
	return env, false
}

// scheduler names the variables of a program that starts tasks.
type scheduler struct {
	rank, size, localRank, localSize, node string
	job                                    []string                // what is the same for all tasks of one start only
	master                                 func(env Lookup) string // where the first task is; "" if that is unknown
}

var schedulers = []scheduler{
	// A batch script has SLURM_PROCID too, but is no task; only srun counts the tasks of a step.
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, slurmMaster},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		"OMPI_COMM_WORLD_NODE_RANK", []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}, nil},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", []string{"PMI_JOBID", "HYDI_CONTROL_FD", "PMI_PORT"}, nil},
}

// translate gives torchrun's variables; what is set under these names comes first.
func (s *scheduler) translate(env Lookup) Lookup {
	names := map[string]string{"RANK": s.rank, "WORLD_SIZE": s.size, "LOCAL_RANK": s.localRank, "LOCAL_WORLD_SIZE": s.localSize}
	if s.localSize == "" { // then its rank among the node's cannot be checked either
		delete(names, "LOCAL_RANK")
		delete(names, "LOCAL_WORLD_SIZE")
	}
	return func(name string) (string, bool) {
		if v, ok := env(name); ok && v != "" {
			return v, true
		}
		switch name {
		case "MASTER_ADDR":
			if s.master != nil {
				return s.master(env), true
			}
			if size := first(env, s.size); size == first(env, s.localSize) {
				return "127.0.0.1", true
			}
		case "MASTER_PORT":
			return s.port(env), true
		}
		if other := names[name]; other != "" {
			return env(other)
		}
		return "", false
	}
}

// port is one that the tasks of one start, and hardly others, agree on.
func (s *scheduler) port(env Lookup) string {
	h := fnv.New32a()
	for _, name := range s.job {
		_, _ = h.Write([]byte(first(env, name) + "\x00")) // a hash takes everything
	}
	return strconv.Itoa(20000 + int(h.Sum32()%10000))
}

func slurmMaster(env Lookup) string {
	list := first(env, "SLURM_STEP_NODELIST")
	if list == "" {
		list = first(env, "SLURM_JOB_NODELIST")
	}
	return firstHost(list)
}

// firstHost gives the first name of a list as Slurm writes it: "gpu[007-012,20],login1".
func firstHost(list string) string {
	end := strings.IndexAny(list, "[,")
	if end < 0 || list[end] == ',' {
		name, _, _ := strings.Cut(list, ",")
		return name
	}
	inside, rest, ok := strings.Cut(list[end+1:], "]")
	if !ok {
		return ""
	}
	number := inside
	if i := strings.IndexAny(inside, "-,"); i >= 0 {
		number = inside[:i]
	}
	suffix, _, _ := strings.Cut(rest, ",")
	return firstHost(list[:end] + number + suffix)
}

func first(env Lookup, name string) string {
	v, _ := env(name)
	return v
}
