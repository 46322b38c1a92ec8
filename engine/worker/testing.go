package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"drun/starlib"

	"go.starlark.net/starlark"
)

// testModule is the module testing, that recipes have under the test runner alone.
func testModule(dir string) *starlib.Module {
	return &starlib.Module{
		Name: "testing",
		Doc:  "What tests of recipes need.",
		Defs: []*starlib.Def{
			{
				Sig: `sleep(s: number)`,
				Doc: "Waits for s seconds.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					time.Sleep(time.Duration(c.Float("s") * float64(time.Second)))
					return nil, nil
				},
			},
			{
				Sig: `kill_self()`,
				Doc: "Ends this rank's process with SIGKILL.",
				Fn: func(*starlib.Call) (starlark.Value, error) {
					if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
						return nil, err
					}
					select {} // the signal takes a moment
				},
			},
			{
				Sig: `exit(code: int)`,
				Doc: "Ends this rank's process with a status, without a word to the agent.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					code := c.Int("code")
					os.Exit(code)
					return nil, nil
				},
			},
			{
				Sig: `hide_file(path: string)`,
				Doc: "Removes a file of the recipe's folder.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					root, err := os.OpenRoot(dir)
					if err != nil {
						return nil, err
					}
					defer root.Close()
					return nil, root.Remove(filepath.FromSlash(c.String("path")))
				},
			},
			{
				Sig: `eq(got, want)`,
				Doc: "An error unless both are equal, in type and as they print.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					got, want := c.Arg("got"), c.Arg("want")
					if got.Type() != want.Type() || got.String() != want.String() {
						return nil, fmt.Errorf("got %s, want %s", got, want)
					}
					return nil, nil
				},
			},
		},
	}
}
