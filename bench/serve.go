package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"drun/history"
	"drun/history/historytest"
	"drun/internal/freeport"
	"drun/internal/try"
	"drun/runs/exchange"
)

// serveCommand measures drun serve beside MLflow's server, through the API that both have: searches among many runs, and many
// writers at once, while drun's server is killed again and again.
const serveCommand = "serve"

// tracking is a server with MLflow's API.
type tracking struct {
	name, url, token string
	start            func() *exec.Cmd
	process          *exec.Cmd
}

// ask sends a request until it is answered, as MLflow's client does.
func (s *tracking) ask(ctx context.Context, path string, in, out any) (took time.Duration, err error) {
	body := try.To(json.Marshal(in))
	for {
		began := time.Now()
		r := try.To(http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/2.0/mlflow/"+path, bytes.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+s.token)
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			text, rerr := io.ReadAll(answer.Body)
			answer.Body.Close()
			took = time.Since(began)
			switch {
			case rerr == nil && answer.StatusCode == http.StatusOK:
				return took, json.Unmarshal(text, out)
			case rerr == nil && answer.StatusCode != http.StatusServiceUnavailable:
				return took, fmt.Errorf("%s: %s: %d %.200s", s.name, path, answer.StatusCode, text)
			}
		}
		if ctx.Err() != nil {
			return took, ctx.Err()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// up starts the server and waits until it answers.
func (s *tracking) up(ctx context.Context) {
	s.process = s.start()
	s.process.Stderr = os.Stderr
	try.Ok(s.process.Start())
	try.To(s.ask(ctx, "experiments/search", map[string]any{"max_results": 10}, &struct{}{}))
}

func (s *tracking) down() {
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL) // its workers, too
	_ = s.process.Wait()
}

// resident is the memory of the server's process in MiB.
func (s *tracking) resident() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kib, _ := strconv.ParseFloat(strings.Fields(after + " 0")[0], 64)
	return kib / 1024
}

func measureServe(ctx context.Context, arguments []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	drun, mlflow := flags.String("drun", "bin/drun", "the drun to measure"), flags.String("mlflow", "bin/exchange/bin/mlflow", "MLflow's command; it is left out if it is not there")
	runs, writers := flags.Int("runs", 30_000, "runs among which is searched"), flags.Int("writers", 64, "writers at once, of 1,000 points a second each")
	lasting, kills := flags.Duration("lasting", time.Minute, "how long they write"), flags.Int("kills", 10, "how often drun's server is killed meanwhile")
	try.Ok(flags.Parse(arguments))
	folder := try.To(os.MkdirTemp("", "drun-bench-"))
	defer os.RemoveAll(folder)
	home := filepath.Join(folder, "home")
	try.Ok(historytest.Fill(home, historytest.Shape{Runs: *runs, Params: 10, Metrics: 10, Points: 5}))
	server := func(name string, command func(port string) []string) *tracking {
		port := strconv.Itoa(try.To(freeport.Find()))
		return &tracking{name: name, url: "http://127.0.0.1:" + port, start: func() *exec.Cmd {
			c := command(port)
			p := exec.Command(c[0], c[1:]...)
			p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return p
		}}
	}
	own := server("drun", func(port string) []string {
		return []string{*drun, "serve", "--home", home, "--listen", "127.0.0.1:" + port}
	})
	own.token = strings.TrimSpace(string(try.To(exec.Command(*drun, "serve", "users", "add", "bench", "--role", "write", "--home", home).Output())))
	servers := []*tracking{own}
	if _, err := os.Stat(*mlflow); err == nil {
		store := filepath.Join(folder, "mlflow.db")
		servers = append(servers, server("MLflow", func(port string) []string {
			return []string{*mlflow, "server", "--backend-store-uri", "sqlite:///" + store, "--artifacts-destination", folder, "--port", port}
		}))
		if text, err := exec.Command(*mlflow, "db", "upgrade", "sqlite:///"+store).CombinedOutput(); err != nil {
			return fmt.Errorf("mlflow db upgrade: %w: %s", err, text)
		}
		db := try.To(history.OpenReadOnly(home))
		var ids []int64
		for id := range *runs {
			ids = append(ids, int64(id)+1)
		}
		try.Ok(exchange.WriteMLflow(store, db, ids))
		try.Ok(db.Close())
	}
	for _, s := range servers {
		s.up(ctx)
		searches(ctx, s, out)
		if s == own {
			writes(ctx, s, *drun, home, *writers, *lasting, *kills, out)
		} else {
			writes(ctx, s, "", "", *writers, *lasting, 0, out)
		}
		fmt.Fprintf(out, "%s: memory at most %.0f MiB\n", s.name, s.resident())
		s.down()
	}
	return nil
}

// searches times searches with a condition and an order.
func searches(ctx context.Context, s *tracking, out io.Writer) {
	experiment := "0"
	if s.name == "MLflow" {
		experiment = "1" // that of exported runs
	}
	for _, q := range []struct {
		name string
		in   map[string]any
	}{
		{"the newest 100 runs", map[string]any{"max_results": 100}},
		{"a condition on a metric, sorted by it", map[string]any{"max_results": 100, "filter": "metrics.acc > 0.5", "order_by": []string{"metrics.acc DESC"}}},
		{"conditions on a parameter and a tag, sorted by a parameter", map[string]any{"max_results": 100, "filter": "params.act = 'gelu' and tags.seventh = ''", "order_by": []string{"params.lr"}}},
	} {
		q.in["experiment_ids"] = []string{experiment}
		times := []time.Duration{}
		found := struct{ Runs []any }{}
		for range 7 {
			times = append(times, try.To(s.ask(ctx, "runs/search", q.in, &found)))
		}
		slices.Sort(times)
		fmt.Fprintf(out, "%s: search for %s: %v (%d found)\n", s.name, q.name, times[len(times)/2].Round(100*time.Microsecond), len(found.Runs))
	}
}

// writes has writers log at once, and counts the rows that are there in the end.
func writes(ctx context.Context, s *tracking, drun, home string, writers int, lasting time.Duration, kills int, out io.Writer) {
	count := func() (n int64) {
		if drun == "" {
			return 0
		}
		var kept []struct{ N int64 }
		try.Ok(json.Unmarshal(try.To(exec.CommandContext(ctx, drun, "sql", "select count(*) n from metrics", "--json", "--home", home).Output()), &kept))
		return kept[0].N
	}
	before := count()
	var mu sync.Mutex
	var sent atomic.Int64
	var times []time.Duration
	var fault error
	var all sync.WaitGroup
	end := time.Now().Add(lasting)
	for i := range writers {
		all.Go(func() {
			err := func() (err error) {
				defer try.Caught(&err)
				var made struct {
					Run struct {
						Info struct {
							ID string `json:"run_id"`
						}
					}
				}
				try.To(s.ask(ctx, "runs/create", map[string]any{"experiment_id": "0", "start_time": time.Now().UnixMilli()}, &made))
				time.Sleep(time.Duration(i) * time.Second / time.Duration(writers)) // they do not write in step
				for step := 0; time.Now().Before(end); step += 1000 {
					next, points := time.Now().Add(time.Second), make([]map[string]any, 1000)
					for k := range points {
						points[k] = map[string]any{"key": "loss", "value": 1 / float64(step+k+1), "timestamp": time.Now().UnixMilli(), "step": step + k}
					}
					took := try.To(s.ask(ctx, "runs/log-batch", map[string]any{"run_id": made.Run.Info.ID, "metrics": points}, &struct{}{}))
					sent.Add(1000)
					mu.Lock()
					times = append(times, took)
					mu.Unlock()
					time.Sleep(time.Until(next))
				}
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
	all.Wait()
	try.Ok(fault)
	slices.Sort(times)
	fmt.Fprintf(out, "%s: %d writers: %.0f points a second, a batch of 1,000 takes %v, 99 of 100 at most %v\n", s.name, writers, float64(sent.Load())/lasting.Seconds(),
		times[len(times)/2].Round(100*time.Microsecond), times[len(times)*99/100].Round(100*time.Microsecond))
	if drun != "" {
		fmt.Fprintf(out, "%s: killed %d times; of %d points %d are there\n", s.name, kills, sent.Load(), count()-before)
	}
}
