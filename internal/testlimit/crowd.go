// Package testlimit scales tests' time limits, which are given for an idle machine.
package testlimit

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Time is how long something may take now that takes d on an idle machine: d times the number of processes that share a core.
func Time(d time.Duration) time.Duration {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return d
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return d
	}
	return time.Duration(float64(d) * max(1, load/float64(runtime.NumCPU())))
}
