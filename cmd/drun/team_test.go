package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"drun/internal/sshtest"
)

// Three people on machines of their own get from nothing to one table, as docs/team.md says: each block of commands runs on the machine
// that its first line names, a network namespace.
func TestTeamDocument(t *testing.T) {
	if !networks() {
		t.Skip("network namespaces take root (in a container, CAP_SYS_ADMIN) and iproute2")
	}
	if missing := sshtest.Missing(); missing != "" {
		t.Skip(missing)
	}
	page, err := os.ReadFile("../../docs/team.md")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("https://runs.example.org", "https://10.77.0.1", "DNS:runs.example.org", "IP:10.77.0.1", "/srv/", "/WORK/server/srv/")
	python := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(page, -1)
	blocks := regexp.MustCompile("(?s)```sh\n# (server|ada|bob|carol)\n(.*?)```").FindAllSubmatch(page, -1)
	want := regexp.MustCompile("(?s)```text\n(.*?)```").FindSubmatch(page)
	if len(python) != 2 || len(blocks) != 8 || want == nil {
		t.Fatalf("the page has %d blocks of Python and %d of commands", len(python), len(blocks))
	}
	mlflow, err := filepath.Abs("../../bin/exchange/bin")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(mlflow, "python3"))
	carol := err == nil
	if !carol {
		t.Log("without MLflow, Carol does not take part: make bin/exchange")
	}
	script, files := "machines 4\nsshdon 0 1 2 runs.example.org\n", fmt.Sprintf("-- line.star --\n%s-- train.py --\n%s", python[0][1], python[1][1])
	for i, b := range blocks {
		who := string(b[1])
		machine := map[string]int{"server": 0, "ada": 1, "bob": 2, "carol": 3}[who]
		if who == "carol" && !carol {
			continue
		}
		script += fmt.Sprintf("exec sh prepare.sh %s\nexec ip netns exec $M%d env WORK=$WORK HOME=$WORK/%s/home XDG_CONFIG_HOME=$WORK/%s/config PATH=%s:$PATH MLFLOW_DISABLE_TELEMETRY=true sh -c 'cd $WORK/%s && sh -e ../block%d.sh >../out%d 2>&1 || { cat ../out%d; exit 1; }'\nends %s/server.pid\n",
			who, machine, who, who, mlflow, who, i, i, i, who)
		files += fmt.Sprintf("-- block%d.sh --\n%s", i, strings.ReplaceAll(here.Replace(string(b[2])), "/WORK/", "$WORK/"))
	}
	files += "-- prepare.sh --\nmkdir -p $1/home $1/srv\ncp line.star train.py $1\n[ $1 = server ] || cp server/cert.pem server/*.token $1\n"
	for line := range strings.Lines(here.Replace(string(want[1]))) {
		who, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if text == "logistic" && !carol {
			continue
		}
		var from []string
		for i, b := range blocks {
			if string(b[1]) == who {
				from = append(from, fmt.Sprint("out", i))
			}
		}
		script += fmt.Sprintf("exec grep -h -F -e '%s' %s\n", text, strings.Join(from, " "))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "team.txtar"), []byte(script+files), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		env.Setenv("NO_COLOR", "1")
		return nil
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"machines N": machines, "ends FILE": endAtLast, "sshdon I J K NAME": startSSHOn})})
}

// endAtLast waits until the server whose number is in a file, if there is one, has said its address in the log beside it,
// and kills it when the script has ended.
func endAtLast(ts *testscript.TestScript, args []string) {
	path := ts.MkAbs(args[0])
	listens := func() bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "server.log"))
		return err != nil || strings.Contains(string(text), "https://")
	}
	for end := time.Now().Add(time.Minute); !listens() && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	ts.Defer(func() {
		text, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), "drun\x00serve\x00") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// sshdon I J K NAME: starts OpenSSH's server on machine I, which machines J and K reach by that name.
func startSSHOn(ts *testscript.TestScript, args []string) {
	dir := ts.MkAbs("ssh")
	ts.Check(os.MkdirAll(dir, 0o700))
	i, err := strconv.Atoi(args[0])
	ts.Check(err)
	j, err := strconv.Atoi(args[1])
	ts.Check(err)
	on := func(i int) []string { return []string{"ip", "netns", "exec", machine(ts, i)} }
	server, err := sshtest.StartAt(sshtest.Place{Dir: dir, Address: fmt.Sprintf("10.77.0.%d", i+1), Server: on(i), Client: on(j)}, args[3])
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("DRUN_SSH", server.SSH)
}
