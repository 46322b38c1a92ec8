// Package sshtest runs OpenSSH's server on this machine, for tests of what drun does by ssh.
package sshtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/freeport"
	"drun/internal/try"
)

// Missing says why there can be no server, "" if there can: OpenSSH's is not installed, or lets this user not in, as one whose
// account is locked or has no shell.
var Missing = sync.OnceValue(func() string {
	if program() == "" {
		return "OpenSSH's server is not installed: apt-get install openssh-client openssh-server"
	}
	dir, err := os.MkdirTemp("", "ssh")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	server, err := Start(dir, "a")
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), " not allowed because ")
		why, _, _ = strings.Cut(why, "\n")
		if why != "" {
			return "OpenSSH's server does not let this user in: " + why
		}
		return "" // the tests will say what is wrong
	}
	server.Close()
	return ""
})

// program returns OpenSSH's server; "": it is not installed.
func program() string {
	path := "/usr/sbin/sshd" // not in the PATH of all users
	if found, err := exec.LookPath("sshd"); err == nil {
		return found
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Server is a server that takes only the key of this test.
type Server struct {
	// SSH is the command that reaches the server by any of the names that were given to [Start]. Two more hosts cannot be
	// reached: refused has no key, and unknown would ask whether its key is right.
	SSH string
	cmd *exec.Cmd
}

// Place is where a server runs.
type Place struct {
	Dir            string   // of its files
	Address        string   // on which it listens
	Server, Client []string // what precedes the command that starts it, and one that reaches it
}

// Start starts a server that is reached by several names. It keeps its files in dir.
func Start(dir string, names ...string) (*Server, error) {
	return StartAt(Place{Dir: dir, Address: "127.0.0.1"}, names...)
}

// StartAt is Start at another place.
func StartAt(at Place, names ...string) (_ *Server, err error) {
	defer try.Caught(&err)
	dir := at.Dir
	if os.Getuid() == 0 {
		try.Ok(os.MkdirAll("/run/sshd", 0o755)) // where it has no rights
	}
	for _, key := range []string{"user", "host"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	_, port, _ := net.SplitHostPort(try.To(freeport.Address()))
	common := "  HostName " + at.Address + "\n  Port " + port + "\n  IdentitiesOnly yes\n"
	known, key := "  UserKnownHostsFile "+filepath.Join(dir, "known")+"\n  StrictHostKeyChecking accept-new\n", "  IdentityFile "+filepath.Join(dir, "user")+"\n"
	files := map[string]string{
		"sshd.conf": fmt.Sprintf("Port %s\nListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nPasswordAuthentication no\nPidFile none\nMaxStartups 100\n", port, at.Address, dir, dir),
		"config": "Host " + strings.Join(names, " ") + "\n" + common + known + key +
			"Host refused\n" + common + known + "  IdentityFile none\n" +
			"Host unknown\n" + common + key + "  UserKnownHostsFile /dev/null\n",
	}
	for name, text := range files {
		try.Ok(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := &Server{SSH: "ssh -F " + filepath.Join(dir, "config")}
	command := append(at.Server, program(), "-D", "-e", "-f", filepath.Join(dir, "sshd.conf"))
	s.cmd = exec.Command(command[0], command[1:]...)
	said := &strings.Builder{}
	s.cmd.Stderr = said
	s.cmd.WaitDelay = time.Second
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	try.Ok(s.cmd.Start())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		probe := append(at.Client, "sh", "-c", s.SSH+" -o BatchMode=yes "+names[0]+" true")
		out, err := exec.CommandContext(ctx, probe[0], probe[1:]...).CombinedOutput()
		if err == nil {
			return s, nil
		}
		if !strings.Contains(string(out), "refused") { // it may not listen yet
			s.Close()
			return nil, fmt.Errorf("ssh to this machine: %w: %s\n%s", err, out, said)
		}
	}
}

// Close ends the server; connections that are open stay.
func (s *Server) Close() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
