package collective

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// While its process is stopped, a wait's time does not pass.
func TestStoppedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSleep(Within(context.Background(), 10*time.Second))
		waited := time.Duration(0)
		for i := 0; ; i++ {
			slice, err := s.Next()
			if errors.Is(err, ErrTimeout) {
				break
			}
			if err != nil || slice <= 0 {
				t.Fatal(slice, err)
			}
			if waited += slice; i == 100 || i == 200 {
				slice += time.Hour
			}
			time.Sleep(slice)
		}
		if waited != 10*time.Second {
			t.Errorf("it waited %v besides", waited)
		}
		// A wait that nothing checks sleeps to its end at once.
		start := time.Now()
		if err := Wait(Within(context.Background(), 10*time.Second), make(chan struct{})); !errors.Is(err, ErrTimeout) || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
