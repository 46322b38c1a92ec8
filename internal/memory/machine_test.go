package memory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMachine(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:         100 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"no control group", map[string]string{"proc/meminfo": meminfo}, 16 << 20},
		{"no limit", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "max\n"}, 16 << 20},
		{"a limit that means nothing", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "0\n"}, 16 << 20},
		{"a container's", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "8388608\n"}, 8 << 20},
		{"a job's", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
			"sys/fs/cgroup/slurm/job_7/memory.max": "4194304\n", "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n"}, 4 << 20},
		{"version 1", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "2097152\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2 << 20},
		{"more than there is", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "33554432\n"}, 16 << 20},
		{"escaping path", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "1048576\n"}, 1 << 20},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := machine(root); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if whole, half := Of(1<<30, 1), Of(1<<30, 2); whole != 1<<30/10*9 || half != 1<<29/10*9 {
		t.Errorf("shares: %d and %d", whole, half)
	}
}

func TestShare(t *testing.T) {
	defer Share(1, 0)
	whole := Limit()
	Share(4, 0)
	if got := Limit(); got < whole/4-10 || got > whole/4+10 {
		t.Errorf("a quarter of %d is %d", whole, got)
	}
	Share(2, 1<<30)
	if got := Limit(); got != 1<<29/10*9 {
		t.Errorf("half of a GiB that others have looked up is %d", got)
	}
}
