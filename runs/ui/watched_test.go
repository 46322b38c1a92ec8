package ui

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"drun/history"
)

// TestWatchedRun measures how much a training run is slowed by a page that watches it: examples/cnn.star on two ranks, alone,
// with a client that asks for all that the page asks for, and with the page itself in a Chromium on this machine. It is one
// run, with these in turns, $DRUN_TEST_WATCHED times each: what counts is how many steps it logs in each of those times. What
// opening the page costs is told apart: it is paid once.
func TestWatchedRun(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("DRUN_TEST_WATCHED"))
	if err != nil {
		t.Skip("make ui-bench runs it: it takes minutes")
	}
	const settle, look = 2 * time.Second, 10 * time.Second
	home := t.TempDir()
	cmd, address, next := startUI(t, home)
	p := browseFor(t, address, time.Hour)
	p.open("/icon.svg") // asks for nothing more
	client, _ := client(t, next())
	run := exec.Command(filepath.Join(installed(t), "drun"), "run", "../../examples/cnn.star", "-n", "2", "-p", "epochs=1000000", "--home", home, "--name", "watched", "--rank-output", "none")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Process.Kill(); _ = run.Wait() }()
	for !found(client, p.base, "watched") {
		time.Sleep(20 * time.Millisecond)
	}

	type window struct {
		way             string
		from, to        time.Time
		server, browser float64 // CPU seconds
	}
	ways := []string{"alone", "asked", "drawn"}
	var all []window
	opening, requests, told := 0.0, 0, 0
	for round := range rounds {
		for turn := range ways {
			way := ways[(turn+round)%len(ways)]
			stop, looks := make(chan struct{}), make(chan int, 1)
			browsing := cpu(t, p.browser())
			switch way {
			case "asked":
				go func() { looks <- ask(client, p.base, "watched", stop) }()
			case "drawn":
				p.open("/run.html?tab=all&id=watched")
			}
			time.Sleep(settle)
			if way == "drawn" {
				opening += cpu(t, p.browser()) - browsing
				p.run("performance.clearResourceTimings(); watched.told = 0; const original = told; told = n => { watched.told++; original(n); }")
			}
			w := window{way: way, from: time.Now(), server: -cpu(t, cmd.Process.Pid), browser: -cpu(t, p.browser())}
			time.Sleep(look)
			w.to, w.server, w.browser = time.Now(), w.server+cpu(t, cmd.Process.Pid), w.browser+cpu(t, p.browser())
			all = append(all, w)
			close(stop)
			switch way {
			case "asked":
				if n := <-looks; n < 3 {
					t.Errorf("the client looked only %d times", n)
				}
			case "drawn":
				if eval[int](p, "document.querySelectorAll('#charts canvas').length") == 0 {
					t.Error("the page shows no curve")
				}
				requests += eval[int](p, "performance.getEntriesByType('resource').length")
				told += eval[int](p, "watched.told")
				p.open("/icon.svg")
			}
		}
	}
	_ = run.Process.Signal(os.Interrupt)
	_ = run.Wait()

	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	points, err := db.Points(1, "loss")
	if err != nil {
		t.Fatal(err)
	}
	rates, server, browser := map[string][]float64{}, map[string]float64{}, map[string]float64{}
	for _, w := range all {
		steps := 0
		for _, p := range points {
			if p.Time.After(w.from) && p.Time.Before(w.to) {
				steps++
			}
		}
		took := w.to.Sub(w.from).Seconds()
		rates[w.way] = append(rates[w.way], float64(steps)/took)
		server[w.way] += w.server / took / float64(rounds)
		browser[w.way] += w.browser / took / float64(rounds)
	}
	for _, way := range ways {
		slower := 100 * (1 - median(rates[way])/median(rates["alone"]))
		t.Logf("%s: %.1f steps a second (%.1f), %+.1f %%; CPU seconds a second: the server %.4f, the browser %.4f", way, median(rates[way]), rates[way], -slower, server[way], browser[way])
		if way == "asked" && slower > 1 {
			t.Error("want at most 1 %")
		}
	}
	seconds := look.Seconds() * float64(rounds)
	t.Logf("the page: %.2f CPU seconds to open it and %v more; then %.2f requests and %.2f events a second", opening/float64(rounds), settle, float64(requests)/seconds, float64(told)/seconds)
}

// ask listens to what the page of a run listens to, until it is told to stop; it returns how often there was something new.
func ask(c *http.Client, base, run string, stop <-chan struct{}) (looks int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	for ctx.Err() == nil { // as long as the client lets it
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/runs/"+run+"/events?metric=loss&seen=-&metric=acc&seen=-&points=800&show=ranks&show=logs&show=artifacts&limit=2000&after=1", nil)
		if err != nil {
			return looks
		}
		resp, err := c.Do(r)
		if err != nil {
			continue
		}
		lines := bufio.NewReader(resp.Body)
		for err == nil {
			var line string
			if line, err = lines.ReadString('\n'); strings.HasPrefix(line, "event: ") {
				looks++
			}
		}
		resp.Body.Close()
	}
	return looks
}

func found(c *http.Client, base, run string) bool {
	resp, err := c.Get(base + "/api/v1/runs/" + run)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// browser is the process of the browser.
func (p *page) browser() int { return chromedp.FromContext(p.ctx).Browser.Process().Pid }

// cpu is what a process and its descendants have used of the cores so far, in seconds.
func cpu(t *testing.T, pid int) (sum float64) {
	t.Helper()
	const ticks = 100 // a second, on Linux
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents, used := map[int]int{}, map[int]float64{}
	for _, file := range all {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		text := string(raw)
		id, _ := strconv.Atoi(text[:strings.Index(text, " ")])
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		parents[id], _ = strconv.Atoi(fields[1])
		for _, at := range []int{11, 12, 13, 14} { // its own, and that of children that have ended
			n, _ := strconv.ParseFloat(fields[at], 64)
			used[id] += n / ticks
		}
	}
	for id := range used {
		for up := id; up > 0; up = parents[up] {
			if up == pid {
				sum += used[id]
				break
			}
		}
	}
	return sum
}
