package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/mattn/go-sqlite3" // SQL driver
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// queries CODE HOME: every command that reads the history ends with that exit
// code and says why.
func queries(ts *testscript.TestScript, args []string) {
	for _, command := range []string{"runs", "show last", "metrics last", "logs last", "sql select+1"} {
		words := strings.Fields(command + " --home " + args[1])
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "+", " ")
		}
		exits(ts, append([]string{args[0], "drun"}, words...))
		if ts.ReadFile("stderr") == "" {
			ts.Fatalf("drun %s says nothing", command)
		}
	}
}

// schema FILE N: writes another schema version into a database; +N and -N count from the one that it has.
func setSchema(ts *testscript.TestScript, args []string) {
	version, err := strconv.Atoi(args[1])
	ts.Check(err)
	db, err := sql.Open("sqlite3", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	if strings.ContainsAny(args[1], "+-") {
		before := 0
		ts.Check(db.QueryRow("pragma user_version").Scan(&before))
		version += before
	}
	_, err = db.Exec(fmt.Sprintf("pragma user_version = %d", version))
	ts.Check(err)
}

// edit FILE STATEMENT: changes a database behind drun's back.
func editDatabase(ts *testscript.TestScript, args []string) {
	db, err := sql.Open("sqlite3", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

// json [PATH VALUE]…: the last command's stdout is JSON and has these values;
// a path is keys and indexes joined by dots, and * stands for any value.
func hasJSON(ts *testscript.TestScript, args []string) {
	if len(args)%2 != 0 {
		ts.Fatalf("json: a path without a value")
	}
	var whole any
	text := ts.ReadFile("stdout")
	ts.Check(json.Unmarshal([]byte(text), &whole))
	for i := 0; i < len(args); i += 2 {
		v := whole
		for _, key := range strings.Split(args[i], ".") {
			switch node := v.(type) {
			case map[string]any:
				v = node[key]
			case []any:
				if n, err := strconv.Atoi(key); err == nil && n < len(node) {
					v = node[n]
				} else {
					v = nil
				}
			default:
				v = nil
			}
		}
		if got := fmt.Sprint(v); v == nil || args[i+1] != "*" && got != args[i+1] {
			ts.Fatalf("%s is %v, want %s, in\n%s", args[i], v, args[i+1], text)
		}
	}
}

// tmpfs DIR OPTIONS: mounts a small file system, or mounts it anew with other
// options.
func mountTmpfs(ts *testscript.TestScript, args []string) {
	dir, flags := ts.MkAbs(args[0]), uintptr(0)
	options := strings.Split(args[1], ",")
	for i, o := range options {
		switch o {
		case "remount":
			flags |= unix.MS_REMOUNT
		case "ro":
			flags |= unix.MS_RDONLY
		default:
			continue
		}
		options[i] = ""
	}
	if flags&unix.MS_REMOUNT == 0 {
		ts.Check(os.MkdirAll(dir, 0o755))
		ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	if err := unix.Mount("drun-test", dir, "tmpfs", flags, strings.Trim(strings.Join(options, ","), ",")); err != nil {
		ts.Fatalf("mounting %s: %v", dir, err)
	}
}

// disk DIR MEBIBYTES: mounts a small disk, a file with ext4.
func mountDisk(ts *testscript.TestScript, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(smallDisk(dir, args[1]))
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func smallDisk(dir, mebibytes string) error {
	out, err := exec.Command("sh", "-c", `truncate -s "$2"M "$1.img" && PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F "$1.img" && mount -o loop "$1.img" "$1"`, "disk", dir, mebibytes).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// loops tells whether this process may mount a file as a disk.
func loops() bool {
	dir, err := os.MkdirTemp("", "disk")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "at")
	if os.Mkdir(at, 0o755) != nil || smallDisk(at, "4") != nil {
		return false
	}
	return unix.Unmount(at, unix.MNT_DETACH) == nil
}

// bindfs FOLDER DIR: shows a folder at DIR once more, through FUSE.
func mountBindfs(ts *testscript.TestScript, args []string) {
	from, dir := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(from, 0o700))
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	ts.Check(exec.Command("bindfs", from, dir).Run())
}

// fuse tells whether bindfs is here and may mount.
func fuse() bool {
	_, err := exec.LookPath("bindfs")
	return err == nil && mounts() && unix.Access("/dev/fuse", unix.R_OK|unix.W_OK) == nil
}

// mounts tells whether this process may mount file systems.
func mounts() bool {
	dir, err := os.MkdirTemp("", "mount")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	if unix.Mount("drun-test", dir, "tmpfs", 0, "size=64k") != nil {
		return false
	}
	return unix.Unmount(dir, unix.MNT_DETACH) == nil
}

// havePyTorch tells whether PyTorch with safetensors is here, and where.
func havePyTorch() bool {
	_, err := os.Stat("../../bin/pytorch/bin/python")
	return err == nil
}
