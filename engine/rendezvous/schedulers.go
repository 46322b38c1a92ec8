package rendezvous

import (
	"cmp"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
)

// Lookup is os.LookupEnv, or a substitute for it.
type Lookup = func(string) (string, bool)

// Launcher is the program that started this process as one rank of a world. Env has its variables under torchrun's
// names, for [FromEnviron].
type Launcher struct {
	Env   Lookup
	names map[string]string // by torchrun's names
	// OnePerNode: it started one process on each node, which may start several ranks itself.
	OnePerNode bool
}

// Name is the launcher's own name for one of torchrun's variables.
func (l *Launcher) Name(name string) string {
	if own := l.names[name]; own != "" {
		return own
	}
	return name
}

// DetectLauncher finds the launcher that started this process as one rank of a world; nil if none did. RANK or WORLD_SIZE take
// precedence. If one launcher runs inside another, such as mpirun in a Slurm allocation, the inner one counts.
func DetectLauncher(env Lookup) *Launcher {
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
			continue // srun also supports PMI
		}
		if first(env, s.size) == "1" {
			return nil
		}
		return &Launcher{s.translate(env), s.names(), s.onePerNode(env)}
	}
	return nil
}

// renamed also looks variables up under other names.
func renamed(env Lookup, names map[string]string) Lookup {
	return func(name string) (string, bool) {
		if v, ok := env(name); ok && v != "" || names[name] == "" {
			return v, ok
		}
		return env(names[name])
	}
}

// scheduler names the variables of a launcher.
type scheduler struct {
	rank, size, localRank, localSize, node string
	nodes                                  string                  // the number of nodes; "" if the launcher does not say
	job                                    []string                // variables that together identify one start of tasks
	start                                  func() string           // identifies the start for the tasks of this machine; nil: job does
	master                                 func(env Lookup) string // where the first task is; "" if that is unknown
}

// schedulers lists the launchers; those that run inside others come first.
var schedulers = []scheduler{
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		"OMPI_COMM_WORLD_NODE_RANK", "", []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}, nil, allocated},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "", []string{"PMI_JOBID", "HYDI_CONTROL_FD", "PMI_PORT"}, hydraProxy, allocated},
	// A batch script also has SLURM_PROCID but is not a task; only srun sets a step's number of tasks.
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, nil, slurmMaster},
}

// names maps torchrun's variables to the scheduler's.
func (s *scheduler) names() map[string]string {
	names := map[string]string{"RANK": s.rank, "WORLD_SIZE": s.size, "LOCAL_RANK": s.localRank, "LOCAL_WORLD_SIZE": s.localSize}
	if s.localSize == "" { // its rank within the node cannot be checked either
		delete(names, "LOCAL_RANK")
		delete(names, "LOCAL_WORLD_SIZE")
	}
	return names
}

// translate returns torchrun's variables; those that are themselves set take precedence.
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

// local reports whether the launcher says that all tasks are on this machine.
func (s *scheduler) local(env Lookup) bool {
	return s.localSize != "" && first(env, s.size) == first(env, s.localSize)
}

func (s *scheduler) onePerNode(env Lookup) bool {
	if s.nodes != "" {
		return first(env, s.nodes) == first(env, s.size)
	}
	return first(env, s.localSize) == "1"
}

// port derives a port from what identifies the start: the same for all its tasks, and very probably different for
// other starts.
func (s *scheduler) port(env Lookup) string {
	h := fnv.New32a()
	for _, name := range s.job {
		_, _ = h.Write([]byte(first(env, name) + "\x00")) // a hash's Write never fails
	}
	if s.start != nil && s.local(env) {
		_, _ = h.Write([]byte(s.start()))
	}
	return strconv.Itoa(20000 + int(h.Sum32()%10000))
}

// hydraProxy identifies one start of Hydra's mpiexec, which sets no variable for that, on this machine: by the
// process that it starts on each machine, an ancestor of all its tasks there. "" if there is none.
func hydraProxy() string {
	for pid := os.Getppid(); pid > 1; {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return ""
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from the third field on
		if len(fields) < 20 {
			return ""
		}
		if strings.HasSuffix(name, "(hydra_pmi_proxy") { // the kernel keeps 15 characters, which is the whole name
			return strconv.Itoa(pid) + " " + fields[19] // with its start time
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return ""
		}
	}
	return ""
}

// allocated is the first node of a Slurm allocation, where launchers put their first task; "" outside one.
func allocated(env Lookup) string { return firstHost(first(env, "SLURM_JOB_NODELIST")) }

func slurmMaster(env Lookup) string {
	return firstHost(cmp.Or(first(env, "SLURM_STEP_NODELIST"), first(env, "SLURM_JOB_NODELIST")))
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

// jobs are the tags that record which job of a scheduler a run belonged to, and the variables that they are made of.
var jobs = [][2]string{{"slurm_job", "SLURM_JOB_ID"}, {"slurm_array", "SLURM_ARRAY_JOB_ID"}, {"slurm_task", "SLURM_ARRAY_TASK_ID"}, {"slurm_nodes", "SLURM_JOB_NODELIST"},
	{"pbs_job", "PBS_JOBID"}, {"pbs_task", "PBS_ARRAY_INDEX"}, {"lsf_job", "LSB_JOBID"}, {"lsf_task", "LSB_JOBINDEX"}, {"lsf_nodes", "LSB_MCPU_HOSTS"}}

// JobTags says in which job of a scheduler this process runs: "slurm_job=77", with the task of an array and the nodes.
// A list of nodes that is too long for a tag, of 200 bytes, is left out.
func JobTags(env Lookup) (tags []string) {
	for _, j := range jobs {
		value := first(env, j[1])
		inArray := j[0] != "lsf_task" || value != "0"
		if tag := j[0] + "=" + value; value != "" && inArray && len(tag) <= 200 {
			tags = append(tags, tag)
		}
	}
	return tags
}

func first(env Lookup, name string) string {
	v, _ := env(name)
	return v
}
