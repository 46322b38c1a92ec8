package main

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"drun/internal/freeport"
	"drun/internal/sshtest"
)

// freeport NAME: sets a variable to a port that nobody listens to.
func freePort(ts *testscript.TestScript, args []string) {
	port, err := freeport.Find()
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(port))
}

// listen NAME: listens to a port, whose number it sets a variable to, and
// closes every connection at once.
func listen(ts *testscript.TestScript, args []string) {
	l := listener(ts, args)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

// listener listens to a port until the script ends, and sets the variable that args name to its number.
func listener(ts *testscript.TestScript, args []string) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Setenv(args[0], port)
	return l
}

// sshd NAME…: makes this machine a host of these names, for DRUN_SSH.
func startSSH(ts *testscript.TestScript, args []string) {
	dir := ts.MkAbs("ssh")
	ts.Check(os.Mkdir(dir, 0o700))
	server, err := sshtest.Start(dir, args...)
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("DRUN_SSH", server.SSH)
}

// sleep SECONDS.
func pause(ts *testscript.TestScript, args []string) {
	s, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	time.Sleep(time.Duration(s * float64(time.Second)))
}

// haveGloo and haveMPI report whether these plugins can be built here.
func haveGloo() bool { return haveEngine("gloo") }
func haveMPI() bool  { return haveEngine("mpi") }

func haveEngine(name string) bool { return strings.Contains(engines(), name) }

// Asked once: it starts a C++ compiler.
var engines = sync.OnceValue(func() string {
	out, _ := exec.Command("sh", "../../plugins/engines.sh").Output()
	return string(out)
})
