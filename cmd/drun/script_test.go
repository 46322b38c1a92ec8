package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"drun/internal/sshtest"
)

// The scripts run the real command: the test's own program, which is the agent
// and, started by it, the workers.
func TestMain(m *testing.M) {
	if signal.Ignored(os.Interrupt) { // a background job of a shell: what the scripts start would ignore it, too
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(m, map[string]func(){"drun": main})
}

var update = flag.Bool("update", false, "rewrite expected outputs in the scripts")

// TestScript runs testdata/script/*.txtar: one file a subject.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			root, err := os.Getwd()
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", root+"/../../examples")
			env.Setenv("PYTORCH", root+"/../../bin/pytorch/bin/python")
			env.Setenv("LITESTREAM", root+"/../../bin/litestream")
			env.Setenv("DRUN_TEST_ARM64", os.Getenv("DRUN_TEST_ARM64"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
			programCache(env)
			env.Setenv("EVIL", "a\x1b]52;c;ZXZpbA==\x07\u009b31m\u202e\nb")
			env.Values[relayKey{}] = &relayed{held: make(chan bool, 1)}
			return nil
		},
		Condition: func(name string) (bool, error) {
			have, known := map[string]func() bool{"gloo": haveGloo, "mpi": haveMPI, "pytorch": havePyTorch, "mounts": mounts, "loops": loops, "fuse": fuse, "networks": networks, "resets": resets, "netem": netem, "clocks": clocks, "sshd": func() bool { return sshtest.Missing() == "" }, "litestream": haveLitestream, "long": long}[name]
			if !known {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return have(), nil
		},
		Cmds: commands(map[string]func(*testscript.TestScript, []string){
			"exits CODE COMMAND [ARG…]": exits,
			"plugins DIR [mpi]":         buildPlugins,
			"keptplugin DIR":            keptPlugin,
			"logged RUN TEXT COUNT":     logged,
			"until PATTERN COMMAND…":    until,
			"freeport NAME":             freePort,
			"listen NAME":               listen,
			"relay NAME|-atmost|-total|-hold|-release [PORT|RATE|LEAST|N MOST]": relay,
			"machines N":                    machines,
			"sshd NAME…":                    startSSH,
			"cut I J":                       cutLink,
			"oneway I J":                    oneWay,
			"worse I DELAY LOSS":            worseLink,
			"reset I J":                     resetLink,
			"crossed NAME":                  crossed,
			"cost CALLS LEAST AT1 AT2 AT3":  cost,
			"sleep SECONDS":                 pause,
			"signal NAME WORDS…":            sendSignal,
			"stall SECONDS WORDS":           stall,
			"suspended SECONDS COUNT WORDS": suspended,
			"processes COUNT WORDS":         processes,
			"nothing left":                  nothingLeft,
			"folders N":                     scratchFolders,
			"badbytes FILE":                 badBytes,
			"queries CODE HOME":             queries,
			"json [PATH VALUE…]":            hasJSON,
			"schema FILE N":                 setSchema,
			"edit FILE STATEMENT":           editDatabase,
			"tmpfs DIR OPTIONS":             mountTmpfs,
			"disk DIR MEBIBYTES":            mountDisk,
			"bindfs FOLDER DIR":             mountBindfs,
			"onterminal COMMAND [ARG…]":     onTerminal,
			"harmless FILE…":                harmless,
		}),
	})
}

func haveLitestream() bool {
	_, err := os.Stat("../../bin/litestream")
	return err == nil
}

// long is what make long does, and make test does not.
func long() bool { return os.Getenv("DRUN_TEST_LONG") != "" }

// commands checks the arguments of commands by their usage, and that none is negated.
func commands(byUsage map[string]func(*testscript.TestScript, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	for usage, run := range byUsage {
		name, arguments, _ := strings.Cut(usage, " ")
		required, _, optional := strings.Cut(arguments, "[")
		least, most := len(strings.Fields(required)), len(strings.Fields(required))
		if optional || strings.HasSuffix(usage, "…") {
			most = math.MaxInt
		}
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least || len(args) > most {
				ts.Fatalf("usage: %s", usage)
			}
			run(ts, args)
		}
	}
	return all
}
