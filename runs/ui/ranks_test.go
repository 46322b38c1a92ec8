package ui

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/history"
	"drun/runs/report"
)

// hangs is a recipe whose last rank computes for ever in another file, while the others wait for it.
func hangs(t *testing.T, home string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(home, "lib"), 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "lib", "recipe.star"), []byte("# A file of the same name.\ndef spin():\n    for i in range(1 << 50):\n        str(i)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return `
load("lib/recipe.star", "spin")

def main():
    dist.barrier()
    if dist.rank() == dist.world_size() - 1:
        spin()
    run.log(reached = 1)
    dist.all_reduce(tensor.ones(2))
`
}

// doing is what the API says of the ranks.
func doing(t *testing.T, c *http.Client, base, run string) (r report.Ranks) {
	t.Helper()
	status, body, _ := get(t, c, base+"/api/v1/runs/"+run+"/ranks")
	if err := json.Unmarshal([]byte(body), &r); status != 200 || err != nil {
		t.Fatal(status, err, body)
	}
	return r
}

// What the ranks do is shown while the run hangs, without anybody sending it a signal, beside the recipe. When its agent is
// stopped, goes on and is killed, the page says so.
func TestHangingRun(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := browse(t, serve(t, home))
	cmd := start(t, home, hangs(t, home), "-n", "3", "--name", "hanging")
	p.until("document.querySelector('#rows .s-running')")
	p.open("/run.html?tab=ranks&id=hanging")
	const cell = "document.querySelector('#doing tbody')?.rows[%d]?.cells[%d].innerText"
	for rank, want := range []string{"waiting", "waiting", "running"} {
		p.until(fmt.Sprintf(cell+" === '%s'", rank, 1, want))
	}
	p.until("document.querySelectorAll('#marked .who').length === 2")
	if got := p.text("#h-ranks") + p.text("#when"); !strings.HasPrefix(got, "What each rank is doing") || !strings.Contains(got, "Now, at") {
		t.Errorf("the heading says %q", got)
	}
	// Each rank at its line, of its file.
	if got := strings.Split(p.text("#marked .at"), "\n"); len(got) != 2 || !strings.Contains(got[0], "dist.all_reduce") || !strings.HasSuffix(got[0], "ranks 0-1") ||
		!strings.Contains(got[1], "str(i)") && !strings.Contains(got[1], "for i") || !strings.HasSuffix(got[1], "rank 2") {
		t.Errorf("marked: %q", got)
	}
	if got := p.text("#marked h3"); got != "recipe.star\nlib/recipe.star" {
		t.Errorf("of the files %q", got)
	}
	if got := p.text("#doing tbody tr:first-child"); !strings.Contains(got, "dist.all_reduce(float32[2], sum)\t2\t-\trecipe.star:9:20") {
		t.Errorf("rank 0: %q", got)
	}
	// The time goes on, without a word from the run.
	was := p.text("#doing tbody tr:first-child td:nth-child(3)")
	p.until("document.querySelector('#doing tbody tr:first-child td:nth-child(3)').innerText !== " + quote(was))
	p.run("document.querySelector('#before').open = true")
	p.until("[...document.querySelectorAll('#calls tbody tr')].some(r => r.innerText.includes('dist.barrier'))")
	p.until("document.querySelector('#doing tr.long')") // ten seconds
	p.shot("hang")

	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.until("document.getElementById('silent').innerText.includes('does not answer: is it stopped?')")
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.until("document.getElementById('silent').innerText === '' && document.querySelector('#doing tbody').rows.length === 3")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	p.until("document.querySelector('#state .s-lost')")
	p.until("document.getElementById('ranks').hidden") // the history has nothing of it
	if db, err := history.Open(home); err != nil {     // marks it lost
		t.Error(err)
	} else {
		db.Close()
	}
	if left, err := filepath.Glob(filepath.Join(home, "locks", "*")); err != nil || len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// For a run that has ended, the answer is what the history has; if the agent does not answer, it says why.
func TestRanksOfOtherRuns(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, "def check():\n    fail('no')\n\ndef main():\n    if dist.rank() == 1:\n        check()\n    dist.barrier()\n", "-n", "2", "--name", "failed").Wait(); err == nil {
		t.Fatal("the recipe should fail")
	}
	if err := start(t, home, "def main(): pass\n", "--name", "fine").Wait(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	if r := doing(t, c, base, "failed"); r.Live || r.Problem != "" || r.Snapshot == nil || r.Snapshot.Reason != "failed" || len(r.Snapshot.Ranks) != 2 ||
		!strings.HasSuffix(r.Snapshot.Ranks[1].Position, "recipe.star:2:9") {
		t.Errorf("%+v", r)
	}
	if r := doing(t, c, base, "fine"); r.Live || r.Problem != "" || r.Snapshot != nil {
		t.Errorf("%+v", r)
	}
	if status, body, _ := get(t, c, base+"/api/v1/runs/none/ranks"); status != 404 {
		t.Errorf("%d %s", status, body)
	}
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Begin(history.RunInfo{Name: "mute"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Leave()
	if r := doing(t, c, base, "mute"); r.Live || !strings.Contains(r.Problem, "cannot be asked") || !strings.Contains(r.Hint, "kill -QUIT") {
		t.Errorf("%+v", r)
	}
}

// Ranks of another node are shown as well, by the run's first process.
func TestRanksOfTwoNodes(t *testing.T) {
	home, second := t.TempDir(), t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	hangs(t, second)
	args := []string{"--nnodes", "2", "--rdzv", address, "--backend", "example", "--plugin-dir", filepath.Join(installed(t), "plugins")}
	start(t, second, hangs(t, second), append(args, "-n", "2", "--node-rank", "1")...)
	start(t, home, hangs(t, home), append(args, "-n", "1", "--node-rank", "0", "--name", "pair")...)
	c, base := client(t, serve(t, home))
	deadline := time.Now().Add(30 * time.Second)
	for {
		var got []string
		if status, _, _ := get(t, c, base+"/api/v1/runs/pair"); status == 200 {
			if s := doing(t, c, base, "pair").Snapshot; s != nil {
				for _, k := range s.Ranks {
					got = append(got, fmt.Sprintf("%d %s %s", k.Rank, k.State, k.Position[strings.LastIndex(k.Position, "/")+1:]))
				}
			}
		}
		text := strings.Join(got, "; ")
		if strings.HasPrefix(text, "0 waiting recipe.star:9:20; 1 waiting recipe.star:9:20; 2 running recipe.star:") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the ranks do: %s", text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
