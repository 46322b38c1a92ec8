package memory

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Machine is how many bytes of memory this machine, or the control group, has for drun. Looking it up reads several
// files, so a node does it once and tells its ranks.
var Machine = sync.OnceValue(func() int { return machine("/") })

// machine is the memory of this machine, or of the process's control groups if they have less. Files are looked for under root.
func machine(root string) int {
	limit := math.MaxInt / 2
	if raw, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
				if kb, err := strconv.Atoi(f[1]); err == nil {
					limit = kb << 10
				}
			}
		}
	}
	for _, file := range groupFiles(root) {
		if raw, err := os.ReadFile(file); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
	}
	return limit
}

// groupFiles names the files that may hold a limit: of the process's control group
// and of each one around it, version 2 and version 1. In a container the group's
// path may be the host's, and the limit is at the top.
func groupFiles(root string) []string {
	raw, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	var files []string
	for line := range strings.Lines("0::/\n1:memory:/\n" + string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		var dir, name string
		switch {
		case part[1] == "":
			dir, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+part[1]+",", ",memory,"):
			dir, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := filepath.Join("/", part[2]); ; group = filepath.Dir(group) {
			files = append(files, filepath.Join(root, dir, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}
