package worker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
)

// crooked is rank 1 of 3, with a backend that computes something else.
type crooked struct {
	collective.Comm
	do func(data []int64) error
}

func (c crooked) Rank() int { return 1 }
func (c crooked) Size() int { return 3 }

func (c crooked) Start(call *collective.Call) (collective.Work, error) {
	return done{c.do(collective.Slice[int64](call.Recv))}, nil
}

type done struct{ err error }

func (d done) Wait(context.Context) error { return d.err }
func (d done) Done() bool                 { return true }

func TestWarmUp(t *testing.T) {
	for want, do := range map[string]func(data []int64) error{
		"":                                    func(data []int64) error { copy(data, []int64{1, 2, 3}); return nil },
		"rank 0 gave 1, and 0 came to rank 1": func(data []int64) error { return nil },
		"rank 1 gave 2, and 4 came to rank 1": func(data []int64) error { copy(data, []int64{1, 4, 3}); return nil }, // connected to itself
		"first all_reduce failed: rank 2 at 10.0.0.3:77: connection refused": func([]int64) error {
			return errors.New("rank 2 at 10.0.0.3:77: connection refused")
		},
		"did not end within 30s": func([]int64) error { return collective.ErrTimeout },
	} {
		err := warmUp(context.Background(), crooked{do: do})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	disttest.RunWith(t, disttest.InProcess, 4, func(t *testing.T, _ int, comm collective.Comm) {
		if err := warmUp(context.Background(), comm); err != nil {
			t.Error(err)
		}
	})
}
