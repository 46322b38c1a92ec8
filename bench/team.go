package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"drun/checkpoints"
	"drun/history"
	"drun/history/historytest"
	"drun/history/records"
	"drun/internal/freeport"
	"drun/internal/try"
	"drun/runs/transfer"
)

const teamCommand = "team"

// measureTeam measures what drun itself says to a team's server: many writers, without and with kills, a page of many runs, and a push of which most
// is there already.
func measureTeam(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	f := flag.NewFlagSet(teamCommand, flag.ContinueOnError)
	drun := f.String("drun", "bin/drun", "the drun to measure")
	lasting := f.Duration("lasting", time.Minute, "how long the writers write")
	writers := f.Int("writers", 64, "how many write at once, 1,000 points a second each")
	kills := f.Int("kills", 10, "how often the server is killed, in a second round")
	runs := f.Int("runs", 30_000, "how many runs the page has")
	weights := f.Int("weights", 1024, "MiB of weights that are pushed")
	try.Ok(f.Parse(args))
	folder := try.To(os.MkdirTemp("", "drun-bench-"))
	defer os.RemoveAll(folder)
	fmt.Fprintf(out, "%s\n\n", machine())
	for _, n := range []int{0, *kills} {
		s := try.To(startServer(ctx, *drun, filepath.Join(folder, fmt.Sprint("home", n))))
		w, werr := write(ctx, s, folder, *writers, *lasting, n)
		s.stop() // in any case
		try.Ok(werr)
		fmt.Fprintf(out, "%d writers, %v, killed %d times: %d points, %d lost, %d twice or changed; a batch: median %v, p99 %v, longest %v; processor time of the last server %v; resident at most %d MiB\n",
			*writers, *lasting, n, w.points, w.lost, w.wrong, w.at(0.5), w.at(0.99), w.at(1), s.used.Round(time.Millisecond), s.peak>>20)
	}
	home := filepath.Join(folder, "many")
	try.Ok(historytest.Fill(home, historytest.Shape{Runs: *runs, Params: 10, Metrics: 10, Points: 10}))
	s := try.To(startServer(ctx, *drun, home))
	defer s.stop()
	for _, query := range []string{"", "?sort=-metrics.acc.last&limit=20", "?where=params.lr+%3C+0.01+and+metrics.acc.last+%3E+0.9&sort=-metrics.acc.last"} {
		took := []time.Duration{}
		for range 5 {
			began := time.Now()
			try.To(s.get(ctx, "/api/v1/runs"+query))
			took = append(took, time.Since(began))
		}
		fmt.Fprintf(out, "%d runs, /api/v1/runs%s: first %v, then %v\n", *runs, query, took[0].Round(time.Millisecond), slices.Min(took).Round(time.Millisecond))
	}
	fmt.Fprintf(out, "resident: %d MiB\n", s.resident()>>20)
	return pushMostlyKnown(ctx, s, folder, *weights, out)
}

// served is a running server.
type served struct {
	drun, home, address, token string
	mu                         sync.Mutex
	cmd                        *exec.Cmd
	peak                       int64 // bytes of memory
	used                       time.Duration
}

func startServer(ctx context.Context, drun, home string) (_ *served, err error) {
	defer try.Caught(&err)
	s := &served{drun: drun, home: home, address: try.To(freeport.Address())}
	text := try.To(exec.CommandContext(ctx, drun, "serve", "users", "add", "writer", "--role", "admin", "--home", home).Output())
	s.token = strings.TrimSpace(string(text))
	return s, s.start()
}

func (s *served) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = exec.Command(s.drun, "serve", "--home", s.home, "--listen", s.address)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if response, err := http.Get("http://" + s.address + "/healthz"); err == nil {
			response.Body.Close()
			return nil
		} else if time.Now().After(end) {
			return err
		}
	}
}

func (s *served) stop() {
	s.peak = max(s.peak, s.resident())
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.used = s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
}

// resident is the most memory that the process has had.
func (s *served) resident() (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}

func (s *served) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, text)
	}
	return text, err
}

// written is what became of points.
type written struct {
	points, lost, wrong int64
	took                []time.Duration // of batches
}

func (w *written) at(share float64) time.Duration {
	return w.took[int(share*float64(len(w.took)-1))].Round(time.Millisecond)
}

// write has writers send points that count up, and compares what the server has in the end.
func write(ctx context.Context, s *served, folder string, writers int, lasting time.Duration, kills int) (_ *written, err error) {
	defer try.Caught(&err)
	db := try.To(history.Open(filepath.Join(folder, fmt.Sprint("from", kills))))
	defer db.Close()
	all := &written{}
	var mu sync.Mutex
	var running sync.WaitGroup
	var failed atomic.Value
	uids, sent := make([]string, writers), make([]int64, writers)
	for i := range writers {
		r := try.To(db.Begin(history.RunInfo{Name: fmt.Sprint("writer-", i), Recipe: "bench", WorldSize: 1, Backend: "none"}))
		try.Ok(r.BeginAttempt())
		uids[i] = r.UID
	}
	end := time.Now().Add(lasting)
	for i, uid := range uids {
		running.Go(func() {
			if err := writer(ctx, s, db, uid, time.Duration(i)*time.Second/time.Duration(writers), end, &sent[i], func(took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				all.took = append(all.took, took)
			}); err != nil {
				failed.Store(err)
			}
		})
	}
	for range kills {
		time.Sleep(lasting / time.Duration(kills+1))
		s.stop()
		try.Ok(s.start())
	}
	running.Wait()
	if err, is := failed.Load().(error); is {
		return nil, err
	}
	slices.Sort(all.took)
	there := try.To(history.OpenReadOnly(s.home))
	defer there.Close()
	for i, uid := range uids {
		e := try.To(there.Extent(uid))
		all.points += sent[i]
		all.lost += max(sent[i]-e.Points, 0)
		n := int64(0)
		try.Ok(there.EachPoint(e.ID, func(seq int64, p *records.Point) {
			if int64(p.Value) != n || p.Step != n {
				all.wrong++
			}
			n++
		}))
	}
	return all, nil
}

// writer sends 1,000 points each second until the end, and what was not taken again.
func writer(ctx context.Context, s *served, db *history.DB, uid string, phase time.Duration, end time.Time, sent *int64, took func(time.Duration)) (err error) {
	defer try.Caught(&err)
	const batch = 1000
	to := transfer.NewRemote(&http.Client{}, "http://"+s.address, s.token)
	to.Patience, to.Within = 20*time.Second, 10*time.Second
	defer to.Close()
	template := try.To(db.SourceOf(uid).Since(history.Extent{UID: uid}))
	time.Sleep(phase)
	there := int64(0) // points that the server has
	start := time.Now()
	for next := start; next.Before(end) || there < *sent; next = next.Add(time.Second) {
		time.Sleep(time.Until(next))
		now := time.Now()
		if end.Before(now) {
			now = end
		}
		*sent = max(*sent, batch*int64(1+now.Sub(start)/time.Second)) // also what it should have sent while the server was away
		for there < *sent {
			d := *template
			d.From.Points, d.Whole, d.Batch.Number = there, there == 0, there/batch+1
			d.Series = history.Series{Names: []string{"loss"}}
			for k := there; k < *sent; k++ {
				d.Series.Name, d.Series.Step, d.Series.Rank = append(d.Series.Name, 0), append(d.Series.Step, k), append(d.Series.Rank, 0)
				d.Series.Value, d.Series.Exact, d.Series.Time = append(d.Series.Value, float64(k)), append(d.Series.Exact, true), append(d.Series.Time, time.Now().UnixMicro())
			}
			began := time.Now()
			_, err := to.Merge(ctx, transfer.Arriving{Delta: &d, Live: true})
			moved := (*history.Moved)(nil)
			if errors.As(err, &moved) { // it had taken a batch whose answer was lost
				there = moved.Points
				continue
			}
			try.Ok(err)
			took(time.Since(began))
			there = *sent
		}
	}
	return nil
}

// pushMostlyKnown pushes weights of which a tenth is new.
func pushMostlyKnown(ctx context.Context, s *served, folder string, size int, out io.Writer) (err error) {
	defer try.Caught(&err)
	home := filepath.Join(folder, "weights")
	db, store := try.To(history.Open(home)), try.To(checkpoints.Open(home))
	defer db.Close()
	defer store.Close()
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, size<<20)
	_, _ = random.Read(data)
	for i := range 2 {
		if i == 1 {
			_, _ = random.Read(data[:len(data)/10])
		}
		r := try.To(db.Begin(history.RunInfo{Recipe: "bench", WorldSize: 1, Backend: "none"}))
		try.Ok(r.BeginAttempt())
		info := try.To(store.Save(r.UID, 1, nil, map[int][]checkpoints.Entry{0: {{Name: "w", Kind: "tensor", DType: "uint8", Shape: []int{len(data)}, Data: data}}}))
		try.Ok(r.Write(&history.Batch{Checkpoints: []history.Checkpoint{{Step: 1, Bytes: info.Bytes, Time: time.Now()}}, End: &history.End{Status: history.Done}}))
		began := time.Now()
		push := exec.CommandContext(ctx, s.drun, "push", "http://"+s.address, "last", "--home", home, "--json")
		push.Env = append(os.Environ(), "DRUN_TOKEN="+s.token)
		push.Stderr = os.Stderr
		var result transfer.Result
		try.Ok(json.Unmarshal(bytes.TrimSpace(try.To(push.Output())), &result))
		fmt.Fprintf(out, "push of %d MiB of weights: sent %d MiB, %d MiB were there, in %v; resident at most %d MiB\n", size, result.Sent>>20, result.There>>20, time.Since(began).Round(time.Millisecond), s.resident()>>20)
	}
	return nil
}
