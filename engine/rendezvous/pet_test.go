package rendezvous

import (
	"strings"
	"testing"
)

func TestPET(t *testing.T) {
	job := "PET_NNODES=2 PET_NODE_RANK=1 PET_NPROC_PER_NODE=4 PET_MASTER_ADDR=master-0 PET_MASTER_PORT=23456"
	for _, c := range []struct {
		env   string
		found bool
		want  Nodes
		fault string
	}{
		{"", false, Nodes{}, ""},
		{job, true, Nodes{Count: 2, Index: 1, Procs: 4, Address: "master-0:23456"}, ""},
		{job + " RANK=1 WORLD_SIZE=8", true, Nodes{Count: 2, Index: 1, Procs: 4, Address: "master-0:23456"}, ""},
		{job + " RANK=1 WORLD_SIZE=2", true, Nodes{Count: 2, Index: 1, Procs: 4, Address: "master-0:23456"}, ""}, // PyTorchJob counts pods
		{job + " LOCAL_RANK=0 RANK=1 WORLD_SIZE=8", false, Nodes{}, ""},                                          // torchrun has started it
		{job + " WORLD_SIZE=6", true, Nodes{}, "PET_NNODES is \"2\" and PET_NPROC_PER_NODE \"4\", which contradicts WORLD_SIZE \"6\""},
		{"PET_NPROC_PER_NODE=3", true, Nodes{Count: 1, Index: 0, Procs: 3, Address: ""}, ""},
		{"PET_NNODES=2 PET_NODE_RANK=0 PET_RDZV_ENDPOINT=a:7", true, Nodes{Count: 2, Index: 0, Procs: 1, Address: "a:7"}, ""},
		{"PET_NNODES=2:2 PET_NODE_RANK=0 MASTER_ADDR=a", true, Nodes{Count: 2, Index: 0, Procs: 1, Address: "a:29500"}, ""},
		{"PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=a", true, Nodes{Count: 2, Index: Unknown, Procs: 1, Address: "a:29500"}, ""},
		{"PET_NNODES=1:4 PET_RDZV_ENDPOINT=a PET_RDZV_ID=job WORLD_SIZE=3", true, Nodes{Count: 4, Least: 1, Index: Unknown, Procs: 1, Address: "a:29500", ID: "job"}, ""},
		{"PET_NNODES=1:4 PET_RDZV_ENDPOINT=a PET_NODE_RANK=3", true, Nodes{Count: 4, Least: 1, Index: 3, Procs: 1, Address: "a:29500"}, ""},
		{"PET_NNODES=3 JOB_COMPLETION_INDEX=2 PET_MASTER_ADDR=a", true, Nodes{Count: 3, Index: 2, Procs: 1, Address: "a:29500"}, ""},
		{"PET_NNODES=3 PET_NODE_RANK=1 JOB_COMPLETION_INDEX=2 PET_MASTER_ADDR=a", true, Nodes{Count: 3, Index: 1, Procs: 1, Address: "a:29500"}, ""},
		{"PET_NNODES=2 JOB_COMPLETION_INDEX=2 PET_MASTER_ADDR=a", true, Nodes{}, "JOB_COMPLETION_INDEX is \"2\": want a whole number from 0 to 1"},
		{"PET_NNODES=2:1", true, Nodes{}, "PET_NNODES is \"2:1\": the minimum of 2 is more than the maximum of 1"},
		{"PET_NNODES=0:2", true, Nodes{}, "the number of nodes must be from 1"},
		{"PET_NNODES=1:x", true, Nodes{}, "want a number of nodes, or MIN:MAX"},
		{"PET_NNODES=2 PET_RDZV_BACKEND=etcd", true, Nodes{}, "PET_RDZV_BACKEND \"etcd\" is neither c10d nor static"},
		{"PET_NPROC_PER_NODE=0", true, Nodes{}, "a node has at least 1 rank"},
		{"PET_NNODES=2 PET_MASTER_ADDR=a", true, Nodes{}, "PET_NODE_RANK is not set"},
		{"PET_NNODES=2 PET_NODE_RANK=2 PET_MASTER_ADDR=a", true, Nodes{}, "PET_NODE_RANK is \"2\": want a whole number from 0 to 1"},
		{"PET_NNODES=2 PET_NODE_RANK=0", true, Nodes{}, "PET_MASTER_ADDR is not set"},
		{"PET_NPROC_PER_NODE=tpu", true, Nodes{}, "PET_NPROC_PER_NODE is \"tpu\""},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		got, found, err := PET(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, 29500)
		switch {
		case found != c.found:
			t.Errorf("%s: found %v", c.env, found)
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %s", c.env, err, c.fault)
			}
		case err != nil || found && got != c.want:
			t.Errorf("%s: %+v %v", c.env, got, err)
		}
	}
}
