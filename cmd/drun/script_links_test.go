package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// networks tells whether this process may make network namespaces.
func networks() bool {
	name := fmt.Sprintf("drun-test-%d", os.Getpid())
	if exec.Command("ip", "netns", "add", name).Run() != nil {
		return false
	}
	return exec.Command("ip", "netns", "del", name).Run() == nil
}

// machine is the namespace of a script's machine.
func machine(ts *testscript.TestScript, i int) string {
	return fmt.Sprintf("drun-test-%d-%s-%d", os.Getpid(), ts.Name(), i)
}

// machines N: makes N network namespaces, whose names the variables M0, M1, … are
// set to, with the addresses 10.77.0.1, 10.77.0.2, … (also fd77::1, …) on one bridge. Nothing of this
// machine's own network is used.
func machines(ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	middle := machine(ts, n)
	for i := range n + 1 {
		name := machine(ts, i)
		ts.Defer(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		ip(ts, "netns add "+name)
		ip(ts, "-n "+name+" link set lo up")
		if i < n {
			ts.Setenv(fmt.Sprintf("M%d", i), name)
		}
	}
	ip(ts, "-n "+middle+" link add bridge type bridge")
	ip(ts, "-n "+middle+" link set bridge up")
	for i := range n {
		name := machine(ts, i)
		ip(ts, fmt.Sprintf("-n %s link add eth0 type veth peer name port%d netns %s", name, i, middle))
		ip(ts, fmt.Sprintf("-n %s link set port%d master bridge up", middle, i))
		ip(ts, fmt.Sprintf("-n %s addr add 10.77.0.%d/24 dev eth0", name, i+1))
		ip(ts, fmt.Sprintf("-n %s addr add fd77::%d/64 dev eth0 nodad", name, i+1))
		ip(ts, fmt.Sprintf("-n %s link set eth0 up", name))
	}
}

// oneway I J: from now on no packet of machine I reaches machine J; those of J reach I.
func oneWay(ts *testscript.TestScript, args []string) {
	i, j := twoMachines(ts, args)
	ip(ts, fmt.Sprintf("-n %s neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 nud permanent dev eth0", machine(ts, i), j+1))
}

// worse I DELAY LOSS: from now on packets of machine I take longer, and some are lost.
func worseLink(ts *testscript.TestScript, args []string) {
	i, err := strconv.Atoi(args[0])
	ts.Check(err)
	if out, err := exec.Command("ip", "netns", "exec", machine(ts, i), "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", args[1], "loss", args[2]).CombinedOutput(); err != nil {
		ts.Fatalf("tc: %v: %s", err, out)
	}
}

// crossed NAME: sets a variable to how many bytes machines 0 and 1 have sent so far.
func crossed(ts *testscript.TestScript, args []string) {
	total := 0
	for i := range 2 {
		text, err := exec.Command("ip", "netns", "exec", machine(ts, i), "cat", "/sys/class/net/eth0/statistics/tx_bytes").Output()
		ts.Check(err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		ts.Check(err)
		total += n
	}
	ts.Setenv(args[0], strconv.Itoa(total))
}

// cost CALLS LEAST BEFORE BETWEEN AFTER: between BETWEEN and AFTER, a run with CALLS more calls has sent as many more bytes
// than one before it, between BEFORE and BETWEEN. A call may cost LEAST bytes and 5 % of that.
func cost(ts *testscript.TestScript, args []string) {
	var n [5]float64
	for i := range n {
		var err error
		n[i], err = strconv.ParseFloat(args[i], 64)
		ts.Check(err)
	}
	ratio := ((n[4] - n[3]) - (n[3] - n[2])) / n[0] / n[1]
	ts.Logf("%.4f times the least", ratio)
	if ratio < 1 || ratio > 1.05 {
		ts.Fatalf("a call sends %.3f times the least", ratio)
	}
}

// netem tells whether links can be made worse here.
func netem() bool {
	name := fmt.Sprintf("drun-netem-%d", os.Getpid())
	if exec.Command("ip", "netns", "add", name).Run() != nil {
		return false
	}
	defer func() { _ = exec.Command("ip", "netns", "del", name).Run() }()
	return exec.Command("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms").Run() == nil
}

// clocks tells whether a process can have a clock that is an hour ahead.
func clocks() bool {
	return exec.Command("unshare", "--time", "--monotonic", "3600", "--boottime", "3600", "--fork", "true").Run() == nil
}

// cut I J: from now on no packet of these two machines reaches the other.
func cutLink(ts *testscript.TestScript, args []string) {
	i, j := twoMachines(ts, args)
	for _, way := range [][2]int{{i, j}, {j, i}} {
		ip(ts, fmt.Sprintf("-n %s neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 nud permanent dev eth0", machine(ts, way[0]), way[1]+1))
	}
}

// resetLink I J: ends the connections of machine I to machine J, on both sides.
func resetLink(ts *testscript.TestScript, args []string) {
	i, j := twoMachines(ts, args)
	out, err := exec.Command("ip", "netns", "exec", machine(ts, i), "ss", "-K", "dst", fmt.Sprintf("10.77.0.%d", j+1)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ESTAB") {
		ts.Fatalf("ss -K: %v: %s", err, out)
	}
}

// resets tells whether ss can end a connection here, on one of its own.
func resets() bool {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return false
	}
	defer conn.Close()
	_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	if exec.Command("ss", "-K", "sport", "=", ":"+port).Run() != nil {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err = conn.Read(make([]byte, 1))
	return err != nil && !os.IsTimeout(err)
}

func twoMachines(ts *testscript.TestScript, args []string) (i, j int) {
	i, err := strconv.Atoi(args[0])
	ts.Check(err)
	j, err = strconv.Atoi(args[1])
	ts.Check(err)
	return i, j
}

func ip(ts *testscript.TestScript, args string) {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		ts.Fatalf("ip %s: %v: %s", args, err, out)
	}
}
