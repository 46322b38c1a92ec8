package rendezvous

import (
	"hash/fnv"
	"os"
	"strconv"
	"strings"
)

// Lookup is os.LookupEnv, or a substitute for it.
type Lookup = func(string) (string, bool)

// Launcher is the program that started this process as one rank of a world. Env
// has its variables under torchrun's names, for [FromEnviron].
type Launcher struct {
	Env   Lookup
	names map[string]string // by torchrun's
	// OnePerNode: it started one process on each node, which may start several ranks itself.
	OnePerNode bool
}

// Name is the variable that the launcher sets in place of one of torchrun's.
func (l *Launcher) Name(name string) string {
	if own := l.names[name]; own != "" {
		return own
	}
	return name
}

// Found detects the launcher that started this process as one rank of a world; nil
// if there is none. RANK or WORLD_SIZE come first. When one launcher runs inside
// another, as mpirun in an allocation of Slurm, the inner one counts.
func Found(env Lookup) *Launcher {
	has := func(name string) bool { v, _ := env(name); return v != "" }
	if has("WORLD_SIZE") && !has("RANK") && has("JOB_COMPLETION_INDEX") { // a pod of an indexed job
		names := map[string]string{"RANK": "JOB_COMPLETION_INDEX"}
		return &Launcher{renamed(env, names), names, true}
	}
	if has("RANK") || has("WORLD_SIZE") {
		return &Launcher{Env: env}
	}
	for i := range schedulers {
		s := &schedulers[i]
		if !has(s.rank) || !has(s.size) {
			continue
		}
		if slurm := &schedulers[len(schedulers)-1]; s.rank == "PMI_RANK" && first(env, s.rank) == first(env, slurm.rank) && first(env, s.size) == first(env, slurm.size) {
			continue // srun speaks PMI too
		}
		if first(env, s.size) == "1" {
			return nil
		}
		return &Launcher{s.translate(env), s.names(), s.onePerNode(env)}
	}
	return nil
}

// renamed looks variables up under other names too.
func renamed(env Lookup, names map[string]string) Lookup {
	return func(name string) (string, bool) {
		if v, ok := env(name); ok && v != "" || names[name] == "" {
			return v, ok
		}
		return env(names[name])
	}
}

// scheduler names the variables of a program that starts tasks.
type scheduler struct {
	rank, size, localRank, localSize, node string
	nodes                                  string                  // how many there are; "" if the launcher does not say
	job                                    []string                // variables that together identify one start of tasks
	start                                  func() string           // identifies it for the tasks of this machine; nil: job does
	master                                 func(env Lookup) string // where the first task is; "" if that is unknown
}

// schedulers lists the launchers, those that run inside others first.
var schedulers = []scheduler{
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		"OMPI_COMM_WORLD_NODE_RANK", "", []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}, nil, allocated},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "", []string{"PMI_JOBID", "HYDI_CONTROL_FD", "PMI_PORT"}, hydraProxy, allocated},
	// A batch script has SLURM_PROCID too, but is not a task; only srun sets a step's number of tasks.
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, nil, slurmMaster},
}

// names maps torchrun's variables to the scheduler's.
func (s *scheduler) names() map[string]string {
	names := map[string]string{"RANK": s.rank, "WORLD_SIZE": s.size, "LOCAL_RANK": s.localRank, "LOCAL_WORLD_SIZE": s.localSize}
	if s.localSize == "" { // then its rank among the node's cannot be checked either
		delete(names, "LOCAL_RANK")
		delete(names, "LOCAL_WORLD_SIZE")
	}
	return names
}

// translate returns torchrun's variables; those that are set themselves come first.
func (s *scheduler) translate(env Lookup) Lookup {
	own := renamed(env, s.names())
	return func(name string) (string, bool) {
		if v, ok := own(name); ok && v != "" {
			return v, true
		}
		switch name {
		case "MASTER_ADDR":
			if s.local(env) {
				return "127.0.0.1", true
			}
			return s.master(env), true
		case "MASTER_PORT":
			return s.port(env), true
		}
		return "", false
	}
}

// local tells whether the launcher says that all tasks are on this machine.
func (s *scheduler) local(env Lookup) bool {
	return s.localSize != "" && first(env, s.size) == first(env, s.localSize)
}

func (s *scheduler) onePerNode(env Lookup) bool {
	if s.nodes != "" {
		return first(env, s.nodes) == first(env, s.size)
	}
	return first(env, s.localSize) == "1"
}

// port derives a port from what identifies the start: the same for all its tasks, and
// most likely another for other starts.
func (s *scheduler) port(env Lookup) string {
	h := fnv.New32a()
	for _, name := range s.job {
		_, _ = h.Write([]byte(first(env, name) + "\x00")) // a hash takes everything
	}
	if s.start != nil && s.local(env) {
		_, _ = h.Write([]byte(s.start()))
	}
	return strconv.Itoa(20000 + int(h.Sum32()%10000))
}

// hydraProxy identifies one start of Hydra's mpiexec on this machine, which sets no variable that would: by the process
// that it starts on each machine, an ancestor of all tasks there. "" if there is none.
func hydraProxy() string {
	for pid := os.Getppid(); pid > 1; {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return ""
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from the third on
		if len(fields) < 20 {
			return ""
		}
		if strings.HasSuffix(name, "(hydra_pmi_proxy") { // 15 letters are kept, which are all
			return strconv.Itoa(pid) + " " + fields[19] // when it started
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return ""
		}
	}
	return ""
}

// allocated is the first node of an allocation of Slurm, on which launchers in it put their first task; "" elsewhere.
func allocated(env Lookup) string { return firstHost(first(env, "SLURM_JOB_NODELIST")) }

func slurmMaster(env Lookup) string {
	if list := first(env, "SLURM_STEP_NODELIST"); list != "" {
		return firstHost(list)
	}
	return allocated(env)
}

// firstHost returns the first name of a list in Slurm's notation: "gpu[007-012,20],login1".
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
