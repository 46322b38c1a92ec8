package drun

import (
	_ "github.com/dustin/go-humanize"
	_ "github.com/dustinkirkland/golang-petname"
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/mattn/go-sqlite3"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "go.starlark.net/starlark"
	_ "go.starlark.net/lib/json"
	_ "go.starlark.net/lib/math"
	_ "go.starlark.net/starlarkstruct"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/tools/go/packages"
)
