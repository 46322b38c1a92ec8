package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts run the real command: the test's own program, which is the agent
// and, started by it, the workers.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drun": main})
}

var update = flag.Bool("update", false, "rewrite expected outputs in the scripts")

// TestScript runs testdata/script/*.txtar: one file a subject.
func TestScript(t *testing.T) {
	built.dir = t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			root, err := os.Getwd()
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", root+"/../../examples")
			env.Setenv("NO_COLOR", "1")
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
			env.Setenv("EVIL", "a\x1b]52;c;ZXZpbA==\x07\u009b31m\u202e\nb")
			env.Values[relayKey{}] = new(relayed)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name == "gloo" {
				return haveGloo(), nil
			}
			if name == "mounts" {
				return mounts(), nil
			}
			if name == "networks" {
				return networks(), nil
			}
			if name == "resets" {
				return resets(), nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"plugins":    buildPlugins,
			"logged":     logged,
			"freeport":   freePort,
			"listen":     listen,
			"relay":      relay,
			"machines":   machines,
			"cut":        cutLink,
			"reset":      resetLink,
			"sleep":      pause,
			"signal":     sendSignal,
			"nothing":    nothingLeft,
			"folders":    scratchFolders,
			"badbytes":   badBytes,
			"queries":    queries,
			"json":       hasJSON,
			"schema":     setSchema,
			"tmpfs":      mountTmpfs,
			"onterminal": onTerminal,
			"harmless":   harmless,
		},
	})
}
