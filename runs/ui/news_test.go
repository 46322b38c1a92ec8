package ui

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"drun/history"
	"drun/history/records"
	"drun/internal/testlimit"
)

// watched is a home with a run that goes on.
func watched(t *testing.T) (home string, run *history.Run) {
	home = t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if run, err = db.Begin(history.RunInfo{Name: "watched", Recipe: "r.star", WorldSize: 1}); err != nil {
		t.Fatal(err)
	}
	return home, run
}

// A page is told what is new, and nothing again: points, lines that the filter takes, members of the run that have changed.
func TestNews(t *testing.T) {
	t.Parallel()
	home, run := watched(t)
	if err := run.BeginAttempt(); err != nil {
		t.Fatal(err)
	}
	step := int64(0)
	write := func(points int, lines ...string) {
		t.Helper()
		b := &history.Batch{}
		for range points {
			b.Points = append(b.Points, records.Point{Name: "loss", Step: step, Value: float64(step), Time: time.Now()})
			step++
		}
		for _, line := range lines {
			b.Lines = append(b.Lines, history.LogLine{Stream: "stdout", Time: time.Now(), Text: line})
		}
		if err := run.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(10, "the first")
	c, base := client(t, serve(t, home))
	c.Timeout = 0 // an answer goes on
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Time(30*time.Second))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/runs/watched/events?metric=loss&seen=-&metric=later&seen=-&points=20&show=logs&grep=the&show=artifacts", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	type event struct {
		Run       map[string]json.RawMessage
		Curves    map[string]curveTold
		Logs      *logTail
		Artifacts []records.Artifact
	}
	in := bufio.NewReader(resp.Body)
	next := func() (e event, text string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err, data)
				}
				return e, data
			}
		}
	}
	first, text := next()
	if string(first.Run["name"]) != `"watched"` || len(first.Curves["loss"].X) != 10 || len(first.Curves) != 1 || first.Logs == nil || len(first.Logs.Lines) != 1 || first.Artifacts == nil {
		t.Fatalf("the first event: %s", text)
	}
	seen := first.Curves["loss"].Seen
	written := time.Now()
	write(3, "a line", "another")
	second, text := next()
	if took := time.Since(written); took > testlimit.Time(time.Second) {
		t.Errorf("a point is told %v after it was written", took)
	}
	loss := second.Curves["loss"]
	if second.Run["name"] != nil || second.Run["metrics"] == nil || loss.After != seen || !slices.Equal(loss.X, []float64{10, 11, 12}) || loss.Points != 13 ||
		len(second.Logs.Lines) != 1 || second.Logs.Lines[0].Text != "another" || second.Artifacts != nil {
		t.Errorf("the second event: %s", text)
	}
	// A chart that would have too many points is sent anew, thinned out.
	write(1000)
	third, text := next()
	if loss := third.Curves["loss"]; loss.After != "" || len(loss.X) > 20 || loss.Points != 1013 || third.Logs != nil {
		t.Errorf("the third event: %s", text)
	}
	for range 5 { // as many as a page would keep
		write(9)
		e, text := next()
		if loss := e.Curves["loss"]; loss.X[len(loss.X)-1] != float64(step-1) || loss.Points != int(step) {
			t.Errorf("an event after %d points: %s", step, text)
		}
	}
	// The end of a run that is killed writes nothing, and is told nevertheless. Where a run is removed, the page is not left to wait.
	run.Leave()
	for e, text := next(); string(e.Run["status"]) != `"lost"`; e, text = next() {
		if e.Run["status"] != nil {
			t.Fatal(text)
		}
	}
	other, err := history.Open(home) // marks it
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Trash([]int64{run.ID}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = in.ReadString('\n')
	}
	if ctx.Err() != nil {
		t.Error("the page waits though the run is gone")
	}
	for path, want := range map[string]string{
		"show=everything":                 "want logs, ranks, usage, artifacts or checkpoints",
		"metric=loss":                     "as many seen",
		"show=logs&grep=(":                "the filter",
		"metric=loss&seen=-&smooth=2":     "less than 1",
		"metric=loss&seen=-&points=1e999": "want a whole number",
	} {
		if status, body, _ := get(t, c, base+"/api/v1/runs/watched/events?"+path); status != 400 && status != 404 || status == 400 && !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// What cannot be read ends the news, so that the page asks and is told why.
func TestNewsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	home, run := watched(t)
	defer run.Leave()
	if err := run.Write(&history.Batch{Lines: []history.LogLine{{Stream: "stdout", Time: time.Now(), Text: "said"}}}); err != nil {
		t.Fatal(err)
	}
	file, err := sql.Open("sqlite3", filepath.Join(home, "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rename := func(from, to string) {
		t.Helper()
		if _, err := file.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			t.Fatal(err)
		}
	}
	c, base := client(t, serve(t, home))
	c.Timeout = 0
	for table, part := range map[string]string{"attempts": "", "logs": "logs", "artifacts": "artifacts", "rank_usage": "usage", "snapshots": "ranks"} {
		ctx, cancel := context.WithTimeout(t.Context(), testlimit.Time(10*time.Second))
		defer cancel()
		address := base + "/api/v1/runs/watched/events"
		if part != "" {
			address += "?show=" + part
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		first, err := in.ReadString('\n')
		if err != nil || first != "event: news\n" {
			t.Fatal(first, err)
		}
		rename(table, "away")
		for err == nil {
			_, err = in.ReadString('\n')
		}
		if ctx.Err() != nil {
			t.Errorf("the page waits though the table %s cannot be read", table)
		}
		cancel()
		rename("away", table)
	}
}

type curveTold struct {
	X           []float64
	Points      int
	Seen, After string
}

// A page that adds what is new, and paints only that, shows the same as a newly opened one.
func TestPageGrows(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := browse(t, serve(t, home))
	start(t, home, `
def main():
    for i in range(100000):
        run.log(step = i, loss = 1.0 / (i + 1))
        run.log(step = i, band = (i * 7919 % 101) / 100.0 + dist.rank(), all_ranks = True)
        if i % 50 == 0: print("step", i)
        began = run.elapsed()
        while dist.rank() == 0 and run.elapsed() < began + 0.01: pass
        dist.barrier()
`, "-n", "2", "--name", "growing")
	p.until("document.querySelector('#rows .s-running')")
	p.open("/run.html?tab=all&id=growing")
	p.until("document.querySelectorAll('#charts canvas').length === 2 && document.getElementById('live').innerText === 'live'")
	p.run("performance.clearResourceTimings(); watched.anew = 0; Chart.prototype.load = (load => function() { watched.anew++; return load.call(this); })(Chart.prototype.load)")
	const points = "document.querySelectorAll('#charts figure')[0].chart.curves[0].points"
	p.until(points + " > 300")
	// What is painted strip by strip is what is painted at once. The pictures are taken without a word of the server between them.
	for range 4 {
		was := eval[int](p, points)
		for eval[int](p, points) == was {
			time.Sleep(50 * time.Millisecond)
		}
		differ := eval[string](p, `[...document.querySelectorAll('#charts figure')].map(f => f.chart.plot).map(u => {
			const picture = () => u.ctx.getImageData(0, 0, u.ctx.canvas.width, u.ctx.canvas.height).data.map((v, i, all) => i % 4 === 3 ? v : v * all[i | 3] / 255); // as it is seen: a transparent pixel has no colour
			const was = picture();
			u.batch(() => u.redraw());
			const now = picture(), out = [];
			now.forEach((v, i) => { if (Math.abs(v - was[i]) > 24) out.push([(i >> 2) % u.ctx.canvas.width, Math.floor((i >> 2) / u.ctx.canvas.width), i % 4, was[i], v]); }); // an edge may be smoothed otherwise
			return out.length ? out.length + " of " + now.length + " bytes, at " + out.slice(0, 20).join(" ") : "";
		}).join("")`)
		if differ != "" {
			t.Errorf("the charts are painted otherwise at once: %s", differ)
		}
	}
	if n := eval[int](p, "watched.anew"); n > 0 {
		t.Errorf("charts were asked for anew %d times", n)
	}
	if n := eval[int](p, "performance.getEntriesByType('resource').length"); n > 3 {
		t.Errorf("%d requests while nobody did anything: %s", n, eval[string](p, "performance.getEntriesByType('resource').map(e => e.name).join('\\n')"))
	}
	// All values are those of a page that is opened now. What a rank has logged of a step that the page has may be on its way.
	same := false
	for try := 0; try < 10 && !same; try++ {
		time.Sleep(time.Duration(try) * 200 * time.Millisecond)
		same = eval[bool](p, `(async () => {
		for (const f of document.querySelectorAll('#charts figure')) {
			const mine = structuredClone(f.chart.curves[0]); // it grows while the answer is on its way
			const all = await api("runs/growing/metrics", { name: f.chart.metric });
			const at = new Map();
			for (const p of all) at.set(p.step, [...(at.get(p.step) ?? []), p.value]);
			for (const [i, x] of mine.x.entries()) {
				const vs = at.get(x);
				if (!vs) return false;
				if (i < mine.x.length - 2 && Math.abs(mine.y[i] - vs.reduce((a, b) => a + b) / vs.length) > 1e-9) return false;
				if (i && mine.x[i - 1] >= x) return false;
			}
			if (mine.low && (mine.low.length !== mine.x.length || mine.high.length !== mine.x.length)) return false;
		}
		return true;
	})()`, chromedp.EvalAwaitPromise)
	}
	if !same {
		t.Error("a chart shows other values than were logged")
	}
	// A hidden page asks for nothing; shown again, it goes on.
	p.run("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true }); document.dispatchEvent(new Event('visibilitychange')); performance.clearResourceTimings()")
	was := eval[int](p, points)
	time.Sleep(1500 * time.Millisecond)
	if now, n := eval[int](p, points), eval[int](p, "performance.getEntriesByType('resource').length"); now != was || n > 1 { // the one that is closed counts
		t.Errorf("hidden: %d points, then %d, %d requests", was, now, n)
	}
	p.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
	p.until(fmt.Sprintf("%s > %d", points, was+200))
	p.shot("growing")
}
