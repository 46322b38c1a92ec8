// Package testlimit scales tests' time limits, which are given for an idle machine.
package testlimit

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Time is how long something may take now that takes d on an idle machine: d times the number of processes that share a
// core, now or in the last minute, whose average lags behind where several packages have just begun.
func Time(d time.Duration) time.Duration {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return d
	}
	var average, skip float64
	var running int
	if _, err := fmt.Sscanf(string(text), "%g %g %g %d/", &average, &skip, &skip, &running); err != nil {
		return d
	}
	return time.Duration(float64(d) * max(1, average/float64(runtime.NumCPU()), float64(running)/float64(runtime.NumCPU())))
}

// Until looks every few milliseconds whether something is true, for at most d, and reports whether it came true. It is for
// what gives no event, such as another process's file.
func Until(d time.Duration, is func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}
