package rendezvous

import (
	"maps"
	"net"
	"strings"
	"testing"
)

func TestJobTags(t *testing.T) {
	long := strings.Repeat("node ", 40)
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "gpu[007-010],login"}, "slurm_job=77 slurm_nodes=gpu[007-010],login"},
		{map[string]string{"SLURM_JOB_ID": "78", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}, "slurm_job=78 slurm_array=70 slurm_task=3"},
		{map[string]string{"PBS_JOBID": "12[4].head", "PBS_ARRAY_INDEX": "4"}, "pbs_job=12[4].head pbs_task=4"},
		{map[string]string{"LSB_JOBID": "9", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": long}, "lsf_job=9"},
		{map[string]string{"LSB_JOBID": "9", "LSB_JOBINDEX": "2"}, "lsf_job=9 lsf_task=2"},
	} {
		if got := strings.Join(JobTags(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }), " "); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}

func TestSchedulers(t *testing.T) {
	slurm := map[string]string{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77",
		"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "gpu[007-010],login"}
	mpi := map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
		"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job"}
	spread := maps.Clone(mpi)
	spread["OMPI_COMM_WORLD_LOCAL_SIZE"], spread["OMPI_COMM_WORLD_LOCAL_RANK"] = "1", "0"
	batch := map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
	both := maps.Clone(slurm)
	maps.Copy(both, mpi)
	alone := maps.Clone(both)
	alone["OMPI_COMM_WORLD_SIZE"], alone["OMPI_COMM_WORLD_RANK"] = "1", "0"
	pmi := maps.Clone(slurm)
	pmi["PMI_RANK"], pmi["PMI_SIZE"] = "3", "8"
	hydra := maps.Clone(pmi) // of which srun has started a proxy on each node
	hydra["PMI_SIZE"], hydra["SLURM_JOB_NODELIST"] = "64", "gpu[05-12]"
	perNode := maps.Clone(slurm)
	perNode["SLURM_STEP_NUM_NODES"] = "8"
	apart := maps.Clone(spread)
	apart["SLURM_JOB_NODELIST"] = "gpu[03,07]"
	for _, c := range []struct {
		name  string
		env   map[string]string
		found bool
		rank  int
		host  string
		fault string
	}{
		{"nothing", nil, false, 0, "", ""},
		{"mpirun over the nodes of an allocation", apart, true, 1, "gpu03", ""},
		{"srun with a task on each node", perNode, true, 3, "gpu007", ""},
		{"srun", slurm, true, 3, "gpu007", ""},
		{"a batch script", batch, false, 0, "", ""},
		{"mpirun", mpi, true, 1, "127.0.0.1", ""},
		{"mpirun on two machines", spread, true, 0, "", "MASTER_ADDR"},
		{"MPICH", map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "a"}, true, 1, "a", ""},
		{"mpirun within Slurm", both, true, 1, "127.0.0.1", ""},
		{"mpirun -n 1 within Slurm", alone, false, 0, "", ""},
		{"srun that speaks PMI", pmi, true, 3, "gpu007", ""},
		{"mpiexec of MPICH within Slurm", hydra, true, 3, "gpu05", ""},
		{"a pod of an indexed job", map[string]string{"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "x", "MASTER_PORT": "5"}, true, 2, "x", ""},
		{"RANK before Slurm", map[string]string{"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "5",
			"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, true, 0, "x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := DetectLauncher(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
			if found := l != nil; found != c.found || !found {
				want(t, "found", found, nil, c.found)
				return
			}
			alone := c.env["SLURM_STEP_NUM_NODES"] == "8" || c.env["OMPI_COMM_WORLD_LOCAL_SIZE"] == "1" || c.env["JOB_COMPLETION_INDEX"] != ""
			want(t, "one process on each node", l.OnePerNode, nil, alone)
			place, address, err := FromEnviron(l.Env)
			if c.fault != "" {
				wantErr(t, err, c.fault)
				return
			}
			want(t, "rank", place.Rank, err, c.rank)
			host, _, err := net.SplitHostPort(address)
			want(t, "host", host, err, c.host)
		})
	}
	for list, host := range map[string]string{"a": "a", "a,b": "a", "n[1-3]": "n1", "n[08,11]": "n08", "r[1-2]n[04-05]x,z": "r1n04x", "": "", "n[1": ""} {
		want(t, list, firstHost(list), nil, host)
	}
}
