package main

import (
	"bytes"
	"context"
	"database/sql"
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
	"syscall"
	"time"

	"drun/checkpoints"
	"drun/history"
	"drun/history/historytest"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/freeport"
	"drun/internal/try"
	"drun/runs/exchange"
	"drun/runs/transfer"
)

// serveCommand measures a team's server beside MLflow's: many writers at once, by drun's requests and by MLflow's API, while drun's
// server is killed again and again; searches and a page of many runs; and a push of weights of which most are there already.
const serveCommand = "serve"

func measureServe(ctx context.Context, arguments []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	f := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	drun, mlflow := f.String("drun", "bin/drun", "the drun to measure"), f.String("mlflow", "bin/exchange/bin/mlflow", "MLflow's command; it is left out if it is not there")
	runs, weights := f.Int("runs", 30_000, "runs among which is searched"), f.Int("weights", 1024, "MiB of weights that are pushed")
	writers, lasting := f.Int("writers", 64, "writers at once, of 1,000 points a second each"), f.Duration("lasting", time.Minute, "how long they write")
	kills := f.Int("kills", 10, "how often drun's server is killed meanwhile")
	try.Ok(f.Parse(arguments))
	folder := try.To(os.MkdirTemp("", "drun-bench-"))
	defer os.RemoveAll(folder)
	fmt.Fprintf(out, "%s\n\n", machine())
	_, err = os.Stat(*mlflow)
	beside := err == nil
	team := func(name string) *server { return startDrun(ctx, *drun, filepath.Join(folder, name)) }
	write := func(s *server, way func(*server, int) writer, kills int) {
		fmt.Fprintf(out, "%s, %d writers, %v, killed %d times: %s\n", s.name, *writers, *lasting, kills, writeAll(ctx, s, *writers, *lasting, kills, way))
		s.down()
		fmt.Fprintf(out, "%s: resident at most %d MiB, processor time since its last start %v\n", s.name, s.peak>>20, s.used.Round(time.Millisecond))
	}
	from := try.To(history.Open(filepath.Join(folder, "from")))
	defer from.Close()
	pushes := func(s *server, i int) writer { return byPush(ctx, s, from, i) }
	logs := func(s *server, _ int) writer { return byMLflow(ctx, s) }
	write(team("quiet"), pushes, 0)
	write(team("killed"), pushes, *kills)
	write(team("mlflow"), logs, *kills)
	if beside {
		write(startMLflow(ctx, *mlflow, filepath.Join(folder, "written.db")), logs, 0)
	}

	home, store := filepath.Join(folder, "many"), filepath.Join(folder, "many.db")
	try.Ok(historytest.Fill(home, historytest.Shape{Runs: *runs, Params: 10, Metrics: 10, Points: 5}))
	own := startDrun(ctx, *drun, home)
	defer own.down()
	for _, query := range []string{"", "?sort=-metrics.acc.last&limit=20", "?where=params.lr+%3C+0.01+and+metrics.acc.last+%3E+0.9&sort=-metrics.acc.last"} {
		fmt.Fprintf(out, "drun, %d runs, /api/v1/runs%s: %s\n", *runs, query, timesOf(func() { try.To(own.request(ctx, http.MethodGet, "/api/v1/runs"+query, nil, nil)) }))
	}
	search(ctx, own, "0", *runs, out)
	fmt.Fprintf(out, "drun: resident at most %d MiB\n", own.resident()>>20)
	pushMostlyKnown(ctx, own, filepath.Join(folder, "weights"), *weights, out)
	if beside {
		try.To(exec.CommandContext(ctx, *mlflow, "db", "upgrade", "sqlite:///"+store).Output())
		db := try.To(history.OpenReadOnly(home))
		defer db.Close()
		try.Ok(exchange.WriteMLflow(store, db, each.UpTo(*runs, func(i int) int64 { return int64(i) + 1 })))
		theirs := startMLflow(ctx, *mlflow, store)
		defer theirs.down()
		search(ctx, theirs, "1", *runs, out) // the experiment of exported runs
		fmt.Fprintf(out, "MLflow: resident at most %d MiB\n", theirs.resident()>>20)
	}
	return nil
}

// server is a server with MLflow's API, and its process.
type server struct {
	name, drun, store, url, token string
	command                       []string
	process                       *exec.Cmd
	peak                          int64 // bytes of memory
	used                          time.Duration
}

func startDrun(ctx context.Context, drun, home string) *server {
	address := try.To(freeport.Address())
	token := try.To(exec.CommandContext(ctx, drun, "serve", "users", "add", "bench", "--role", "admin", "--home", home).Output())
	s := &server{name: "drun", drun: drun, store: home, url: "http://" + address, token: strings.TrimSpace(string(token)), command: []string{drun, "serve", "--home", home, "--listen", address}}
	s.up(ctx)
	return s
}

func startMLflow(ctx context.Context, mlflow, store string) *server {
	address := try.To(freeport.Address())
	_, port, _ := strings.Cut(address, ":")
	s := &server{name: "MLflow", store: store, url: "http://" + address, command: []string{mlflow, "server", "--backend-store-uri", "sqlite:///" + store, "--artifacts-destination", filepath.Dir(store), "--port", port}}
	s.up(ctx)
	return s
}

// up starts the server and waits until it answers.
func (s *server) up(ctx context.Context) {
	s.process = exec.Command(s.command[0], s.command[1:]...)
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if s.drun != "" { // MLflow's says much
		s.process.Stderr = os.Stderr
	}
	try.Ok(s.process.Start())
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	s.post(ctx, "experiments/search", map[string]any{"max_results": 10}, nil)
}

// down kills the server, and its workers.
func (s *server) down() {
	s.peak = max(s.peak, s.resident())
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	_ = s.process.Wait()
	s.used = s.process.ProcessState.UserTime() + s.process.ProcessState.SystemTime()
}

// resident is the most memory that the process has had.
func (s *server) resident() (bytes int64) {
	return int64(ownSize(s.process.Process.Pid) * mib)
}

func (s *server) request(ctx context.Context, method, path string, in, out any) (status int, err error) {
	defer try.Caught(&err)
	r := try.To(http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(try.To(json.Marshal(in)))))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.token)
	answer := try.To(http.DefaultClient.Do(r))
	defer answer.Body.Close()
	text := try.To(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, fmt.Errorf("%s: %s: %d %.200s", s.name, path, answer.StatusCode, text)
	}
	if out != nil {
		err = json.Unmarshal(text, out)
	}
	return answer.StatusCode, err
}

// post sends a request to MLflow's API until it is answered, as MLflow's client does.
func (s *server) post(ctx context.Context, path string, in, out any) {
	for {
		status, err := s.request(ctx, http.MethodPost, "/api/2.0/mlflow/"+path, in, out)
		if err == nil {
			return
		}
		if status != 0 && status != http.StatusServiceUnavailable || ctx.Err() != nil {
			try.Ok(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// writer sends the points of one run that count up, from one number to another, and returns how many are there.
type writer struct {
	uid  string
	send func(from, to int64) (there int64)
}

func byPush(ctx context.Context, s *server, db *history.DB, i int) writer {
	r := try.To(db.Begin(history.RunInfo{Name: fmt.Sprintf("%s-%d", filepath.Base(s.store), i), Recipe: "bench", WorldSize: 1, Backend: "none"}))
	try.Ok(r.BeginAttempt())
	to := transfer.NewRemote(&http.Client{}, s.url, s.token)
	to.Within = 10 * time.Second
	template := try.To(db.SourceOf(r.UID).Since(history.Extent{UID: r.UID}))
	return writer{r.UID, func(from, upTo int64) int64 {
		d := *template
		d.From.Points, d.Whole, d.Batch.Number = from, from == 0, upTo
		d.Series = history.Series{Names: []string{"loss"}}
		for k := from; k < upTo; k++ {
			d.Series.Name, d.Series.Step, d.Series.Rank = append(d.Series.Name, 0), append(d.Series.Step, k), append(d.Series.Rank, 0)
			d.Series.Value, d.Series.Exact, d.Series.Time = append(d.Series.Value, float64(k)), append(d.Series.Exact, true), append(d.Series.Time, time.Now().UnixMicro())
		}
		_, err := transfer.Merge(ctx, to, transfer.Arriving{Delta: &d, Live: true})
		if moved := (*history.Moved)(nil); errors.As(err, &moved) { // it had taken a batch whose answer was lost
			return moved.Points
		}
		try.Ok(err)
		return upTo
	}}
}

func byMLflow(ctx context.Context, s *server) writer {
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			}
		}
	}
	s.post(ctx, "runs/create", map[string]any{"experiment_id": "0", "start_time": time.Now().UnixMilli()}, &made)
	uid := made.Run.Info.ID
	return writer{uid, func(from, upTo int64) int64 {
		upTo = min(upTo, from+1000) // the most that MLflow's API takes at once
		points := each.UpTo(int(upTo-from), func(i int) map[string]any {
			k := from + int64(i)
			return map[string]any{"key": "loss", "value": k, "timestamp": time.Now().UnixMilli(), "step": k}
		})
		s.post(ctx, "runs/log-batch", map[string]any{"run_id": uid, "metrics": points}, nil)
		return upTo
	}}
}

// writeAll has writers send 1,000 points each second, also those of the time when the server was away, and compares what is there in
// the end. MLflow's server, which is not killed, gets no more than it takes in time.
func writeAll(ctx context.Context, s *server, writers int, lasting time.Duration, kills int, way func(*server, int) writer) string {
	const batch = 1000
	var mu sync.Mutex
	var running sync.WaitGroup
	var fault error
	times, points := []time.Duration{}, map[string]int64{}
	ways := each.UpTo(writers, func(i int) writer { return way(s, i) })
	start := time.Now()
	end := start.Add(lasting)
	for i, w := range ways {
		running.Go(func() {
			err := func() (err error) {
				defer try.Caught(&err)
				began := start.Add(time.Duration(i) * time.Second / time.Duration(writers)) // they do not write in step
				sent, there := int64(0), int64(0)
				for next := began; next.Before(end) || there < sent; next = next.Add(time.Second) {
					time.Sleep(time.Until(next))
					if s.drun == "" && time.Now().After(end) {
						break
					}
					due := batch * int64(1+max(min(time.Since(began), end.Sub(began)-1), 0)/time.Second)
					if s.drun == "" {
						due = there + batch
					}
					for sent = max(sent, due); there < sent; {
						began := time.Now()
						there = w.send(there, sent)
						mu.Lock()
						times = append(times, time.Since(began))
						mu.Unlock()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				points[w.uid] = sent
				return nil
			}()
			if err != nil {
				mu.Lock()
				fault = err
				mu.Unlock()
			}
		})
	}
	for range kills {
		time.Sleep(lasting / time.Duration(kills+1))
		s.down()
		s.up(ctx)
	}
	running.Wait()
	if fault != nil && s.drun == "" { // MLflow's server refuses some of many writers
		return fmt.Sprintf("it has refused %d of %d writers, %v", writers-len(points), writers, fault)
	}
	try.Ok(fault)
	slices.Sort(times)
	at := func(share float64) time.Duration {
		return times[int(share*float64(len(times)-1))].Round(time.Millisecond)
	}
	sent, lost, wrong := int64(0), int64(0), int64(0)
	for uid, n := range points {
		sent += n
		there, other := s.there(uid)
		lost, wrong = lost+max(n-there, 0), wrong+other+max(there-n, 0)
	}
	return fmt.Sprintf("%d points, %d lost, %d twice or changed; a batch: median %v, p99 %v, longest %v", sent, lost, wrong, at(0.5), at(0.99), at(1))
}

// there counts the points of a run that the server has, and those of them that are not what was sent.
func (s *server) there(uid string) (n, wrong int64) {
	if s.drun == "" {
		db := try.To(sql.Open("sqlite3", "file:"+s.store+"?mode=ro"))
		defer db.Close()
		try.Ok(db.QueryRow("SELECT count(*), count(*) - count(DISTINCT step) FROM metrics WHERE run_uuid = ?", uid).Scan(&n, &wrong))
		return n, wrong
	}
	db := try.To(history.OpenReadOnly(s.store))
	defer db.Close()
	try.Ok(db.EachPoint(try.To(db.Extent(uid)).ID, func(_ int64, p *records.Point) {
		if p.Value != float64(n) || p.Step != n {
			wrong++
		}
		n++
	}))
	return n, wrong
}

// timesOf calls a function up to seven times, until half a minute has passed.
func timesOf(fn func()) string {
	times := []time.Duration{}
	for start := time.Now(); len(times) < 7 && time.Since(start) < 30*time.Second; {
		began := time.Now()
		fn()
		times = append(times, time.Since(began))
	}
	first := times[0]
	slices.Sort(times)
	return fmt.Sprintf("median %v, first %v", times[len(times)/2].Round(100*time.Microsecond), first.Round(100*time.Microsecond))
}

// search times searches through MLflow's API with a condition and an order, and a page with all runs.
func search(ctx context.Context, s *server, experiment string, runs int, out io.Writer) {
	for _, q := range []struct {
		name string
		in   map[string]any
	}{
		{"the newest 100 runs", map[string]any{"max_results": 100}},
		{"a condition on a metric, sorted by it", map[string]any{"max_results": 100, "filter": "metrics.acc > 0.5", "order_by": []string{"metrics.acc DESC"}}},
		{"conditions on a parameter and a tag, sorted by a parameter", map[string]any{"max_results": 100, "filter": "params.act = 'gelu' and tags.seventh = ''", "order_by": []string{"params.lr"}}},
		{"all runs", map[string]any{"max_results": runs}},
	} {
		q.in["experiment_ids"] = []string{experiment}
		found := struct{ Runs []json.RawMessage }{}
		took := timesOf(func() { s.post(ctx, "runs/search", q.in, &found) })
		fmt.Fprintf(out, "%s: search for %s: %s (%d found)\n", s.name, q.name, took, len(found.Runs))
	}
}

// pushMostlyKnown pushes weights of which a tenth is new.
func pushMostlyKnown(ctx context.Context, s *server, home string, size int, out io.Writer) {
	db, store := try.To(history.Open(home)), try.To(checkpoints.Open(home))
	defer db.Close()
	defer store.Close()
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, size<<20)
	_, _ = random.Read(data)
	for range 2 {
		r := try.To(db.Begin(history.RunInfo{Recipe: "bench", WorldSize: 1, Backend: "none"}))
		try.Ok(r.BeginAttempt())
		info := try.To(store.Save(r.UID, 1, nil, map[int][]checkpoints.Entry{0: {{Name: "w", Kind: "tensor", DType: "uint8", Shape: []int{len(data)}, Data: data}}}))
		try.Ok(r.Write(&history.Batch{Checkpoints: []history.Checkpoint{{Step: 1, Bytes: info.Bytes, Time: time.Now()}}, End: &history.End{Status: history.Done}}))
		began := time.Now()
		push := exec.CommandContext(ctx, s.drun, "push", s.url, "last", "--home", home, "--json")
		push.Env = append(os.Environ(), "DRUN_TOKEN="+s.token)
		push.Stderr = os.Stderr
		var result transfer.Result
		try.Ok(json.Unmarshal(try.To(push.Output()), &result))
		fmt.Fprintf(out, "push of %d MiB of weights: sent %d MiB, %d MiB were there, in %v; resident at most %d MiB\n", size, result.Sent>>20, result.There>>20, time.Since(began).Round(time.Millisecond), s.resident()>>20)
		_, _ = random.Read(data[:len(data)/10])
	}
}
