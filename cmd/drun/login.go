package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/transfer"
)

// logins are the servers that this user has a token for, in a file that only the user can read.
type logins struct {
	Follow string            `json:"follow"` // the server that runs follow to
	Tokens map[string]string `json:"tokens"` // by address
}

func loginsPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "drun", "servers.json"), err
}

func readLogins() (l logins, err error) {
	defer try.Caught(&err)
	l.Tokens = map[string]string{}
	path, err := loginsPath()
	if err != nil {
		return l, nil // there is no home directory
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return l, exit.Errorf(exit.Usage, "%s cannot be read: %w", path, err)
	}
	return l, nil
}

func (l *logins) write() (err error) {
	defer try.Caught(&err)
	path := try.To(loginsPath())
	try.Ok(os.MkdirAll(filepath.Dir(path), 0o700))
	text := try.To(json.MarshalIndent(l, "", "  "))
	next := path + ".new"
	try.Ok(os.WriteFile(next, append(text, '\n'), 0o600))
	return os.Rename(next, path)
}

// addressOf is a server's address in one form.
func addressOf(text string) (string, error) {
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.RawQuery != "" {
		return "", usage("for example https://runs.example.org", "%q is no address of a server", text)
	}
	return strings.TrimRight(text, "/"), nil
}

// dialWithin is how long a server that is off may leave an attempt to connect without an answer.
const dialWithin = 5 * time.Second

// tokenFor is this user's token for a server; "": there is none.
func tokenFor(address string) (string, error) {
	known, err := readLogins()
	return cmp.Or(os.Getenv("DRUN_TOKEN"), known.Tokens[address]), err
}

// followed is the address of the server that runs follow to, by the flag --server; "": there is none.
func followed(flag string) (_ string, err error) {
	defer try.Caught(&err)
	if flag == "" {
		flag = try.To(readLogins()).Follow
	}
	if flag == "" || flag == "none" {
		return "", nil
	}
	return addressOf(flag)
}

// serverAt is the server with an address, and this user's token.
func serverAt(address string) (*transfer.Remote, error) {
	address, err := addressOf(address)
	if err != nil {
		return nil, err
	}
	token, err := tokenFor(address)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialWithin}).DialContext
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return transfer.NewRemote(client, address, token), err
}

func newLogin() *cobra.Command {
	return &cobra.Command{
		Use:   "login URL",
		Short: "Keep the token for a team's server, which runs follow to from now on",
		Long: `Reads a token for a server (drun serve) from the terminal, standard input or $DRUN_TOKEN, and keeps it for drun push, drun pull
and drun run in a file that only you can read. Runs follow to the server while they go on, unless --server says otherwise.`,
		Example: "  drun login https://runs.example.org",
		RunE: func(cmd *cobra.Command, args []string) error {
			address := try.To(addressOf(args[0]))
			token := os.Getenv("DRUN_TOKEN")
			if token == "" {
				token = try.To(askToken(cmd, address))
			}
			server := transfer.NewRemote(&http.Client{}, address, token)
			server.Patience = 5 * time.Second
			hello := try.To(transfer.Greet(cmd.Context(), server, struct{}{}))
			known := try.To(readLogins())
			known.Follow, known.Tokens[address] = address, token
			try.Ok(known.write())
			return answer(cmd, map[string]string{"server": address, "user": hello.User}, "logged in to %s as %s: runs follow there from now on (--server none: not)", address, hello.User)
		},
	}
}

func askToken(cmd *cobra.Command, address string) (string, error) {
	if in, is := cmd.InOrStdin().(*os.File); is && term.IsTerminal(int(in.Fd())) {
		fmt.Fprintf(cmd.ErrOrStderr(), "token for %s: ", address)
		text, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return strings.TrimSpace(string(text)), err
	}
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", usage("whoever runs the server makes one with drun serve users add", "there is no token on standard input, nor in DRUN_TOKEN")
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

func newLogout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout [URL]",
		Short: "Forget the tokens of drun login, or that for one server",
		RunE: func(cmd *cobra.Command, args []string) error {
			known := try.To(readLogins())
			for address := range known.Tokens {
				if len(args) == 0 || address == try.To(addressOf(args[0])) {
					delete(known.Tokens, address)
					if known.Follow == address {
						known.Follow = ""
					}
				}
			}
			return known.write()
		},
	}
}

// serverFlags are the flags with which a run follows to a server.
type serverFlags struct{ server, weights, project string }

func (s *serverFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.server, "server", os.Getenv("DRUN_SERVER"), "the `address` of a server that the run follows to while it goes on, or none ($DRUN_SERVER; default: that of drun login)")
	f.StringVar(&s.weights, "weights", "all", "of which checkpoints the server gets the weights: none, best or all")
	f.StringVar(&s.project, "project", os.Getenv("DRUN_PROJECT"), "the `project` of a team that the run belongs to ($DRUN_PROJECT)")
}

// endWithin is how long a command waits at most for a server that still takes what a run has left.
const endWithin = time.Minute

// follow has the runs of a command follow to a server. end waits a moment until the server has all.
func (s *serverFlags) follow(cmd *cobra.Command, o *run.Options) (end func(), err error) {
	defer try.Caught(&err)
	try.Ok(transfer.CheckWeights(s.weights))
	if s.project != "" {
		try.Ok(history.CheckProject(s.project))
		o.ProjectName = s.project
	}
	address := try.To(followed(s.server))
	if address == "" {
		return func() {}, nil
	}
	errs := cmd.ErrOrStderr()
	f := &transfer.Follower{Home: o.Home, Server: address, Weights: s.weights, Open: func() (*transfer.Remote, error) { return serverAt(address) },
		Say: func(text string) { fmt.Fprintln(errs, text) }}
	before := o.OnEntered
	o.OnEntered = func(id int64) {
		if before != nil {
			before(id)
		}
		f.Follow(id)
	}
	return func() {
		if left := f.End(endWithin, o.Signals); left > 0 {
			fmt.Fprintf(errs, "drun: %s does not have all of %s yet: what it lacks follows with the next run, or with drun push %s --all\n", address, english.Plural(left, "run", ""), address)
		}
	}, nil
}
