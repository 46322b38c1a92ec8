package ui

import (
	"bufio"
	"fmt"
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
// with a client that asks for all that the page asks for, and with the page itself in a Chromium on this machine; in
// turns, $DRUN_TEST_WATCHED times each. What the browser draws with is taken from the run too where all cores are in use, and
// stands apart.
func TestWatchedRun(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("DRUN_TEST_WATCHED"))
	if err != nil {
		t.Skip("it takes minutes: DRUN_TEST_WATCHED=ROUNDS (make ui-bench)")
	}
	home := t.TempDir()
	cmd, address, next := startUI(t, home)
	p := browseFor(t, address, time.Hour)
	p.open("/icon.svg") // asks for nothing more
	client, _ := client(t, next())

	ways := []string{"alone", "asked", "drawn"}
	seconds := map[string][]float64{}
	server, browser := map[string]float64{}, map[string]float64{}
	for round := range rounds {
		for turn := range ways {
			way := ways[(turn+round)%len(ways)]
			name := fmt.Sprintf("%s-%d", way, round)
			before, browsing := cpu(t, cmd.Process.Pid), cpu(t, p.browser())
			run := exec.Command(filepath.Join(built, "drun"), "run", "../examples/cnn.star", "-n", "2", "-p", "epochs=40", "--home", home, "--name", name, "--rank-output", "none")
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			looks := make(chan int, 1)
			switch way {
			case "asked":
				go func() { looks <- ask(client, p.base, name, stop) }()
			case "drawn":
				for !found(client, p.base, name) {
					time.Sleep(20 * time.Millisecond)
				}
				p.open("/run.html?id=" + name)
			}
			if err := run.Wait(); err != nil {
				t.Fatal(err)
			}
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
				p.open("/icon.svg")
			}
			took := secondsOf(t, home, name)
			seconds[way] = append(seconds[way], took)
			server[way] += cpu(t, cmd.Process.Pid) - before
			browser[way] += cpu(t, p.browser()) - browsing
		}
	}
	alone := median(seconds["alone"])
	for _, way := range ways {
		took := 0.0
		for _, s := range seconds[way] {
			took += s
		}
		slower := 100 * (median(seconds[way])/alone - 1)
		t.Logf("%s: %.2f s, %+.1f %%; the server used %.1f %% of a core, the browser %.1f %%", way, median(seconds[way]), slower, 100*server[way]/took, 100*browser[way]/took)
		if way == "asked" && slower > 1 {
			t.Error("want at most 1 %")
		}
	}
}

// ask asks for what the page of a run asks for, as often, until it is told to stop; it returns how often that was.
func ask(c *http.Client, base, run string, stop <-chan struct{}) (looks int) {
	read := func(what string) (ok bool) {
		resp, err := c.Get(base + "/api/v1/" + what)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		for in := bufio.NewReader(resp.Body); err == nil; _, err = in.Discard(1 << 16) {
			continue
		}
		return resp.StatusCode == http.StatusOK
	}
	go func() { // as long as the client lets it
		for {
			select {
			case <-stop:
				return
			default:
				read("events")
			}
		}
	}()
	ranks, usage := time.Time{}, time.Time{}
	for {
		select {
		case <-stop:
			return looks
		default:
		}
		start := time.Now()
		if read("runs/" + run) {
			looks++
			read("curves?points=800&metric=loss&run=" + run)
			read("curves?points=800&metric=acc&run=" + run)
			read("runs/" + run + "/logs?limit=2000&after=1")
			if start.Sub(ranks) > time.Second {
				ranks = start
				read("runs/" + run + "/ranks")
			}
			if start.Sub(usage) > 3*time.Second {
				usage = start
				read("runs/" + run + "/usage")
				read("runs/" + run + "/artifacts")
			}
		}
		time.Sleep(min(600*time.Millisecond, max(450*time.Millisecond, 20*time.Since(start))))
	}
}

func found(c *http.Client, base, run string) bool {
	resp, err := c.Get(base + "/api/v1/runs/" + run)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func secondsOf(t *testing.T, home, run string) float64 {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id, err := db.Find(run)
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return *d.Seconds
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
