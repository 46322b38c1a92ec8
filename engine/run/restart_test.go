package run

import (
	"testing"
	"time"

	"drun/internal/exit"
)

func TestRestartable(t *testing.T) {
	for code, want := range map[exit.Code]bool{
		exit.Recipe: true, exit.RankLost: true, exit.Timeout: true, exit.Backend: true,
		exit.Done: false, exit.Usage: false, exit.Mismatch: false, exit.Storage: false, exit.Requirement: false, exit.Interrupted: false,
	} {
		if restartable(code) != want {
			t.Errorf("exit code %d is restarted: %v", code, !want)
		}
	}
}

func TestBackOff(t *testing.T) {
	for idle, want := range map[int]time.Duration{0: 0, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 10: 30 * time.Second, 100000: 30 * time.Second} {
		if got := backOff(idle); got != want {
			t.Errorf("after %d attempts that saved nothing the pause is %v, want %v", idle, got, want)
		}
	}
}
