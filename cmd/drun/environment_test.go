package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// launcherVariable is what programs that start drun, or drun itself, set.
var launcherVariable = regexp.MustCompile(`^((DRUN|PET|SLURM|OMPI|PMI|PMIX|HYDI|PBS|LSB|MPI|TORCH|GLOO)_[A-Za-z0-9_]+)=?1?$`)

// mpiOwn matches what looks like a launcher's variable, but is a function of MPI or set for mpirun.
var mpiOwn = regexp.MustCompile(`^(MPI_I|OMPI_MCA_(oob|pml|btl|opal|mpi_yield|orte_tmpdir|$)|OMPI_ALLOW_)`)

// variables finds the environment variables that drun's sources name, and where.
func variables(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	getenv := regexp.MustCompile(`getenv\("([A-Z_]+)"\)`)
	for _, dir := range []string{"cmd", "engine", "kernel", "collective", "plugins", "starlib", "history", "checkpoints", "internal", "runs", "tensor"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			switch name := filepath.Base(path); {
			case err != nil:
				return err
			case d.IsDir() && (name == "testdata" || name == "disttest" || name == "recipetest" || name == "enginetest" || name == "sqldbtest"):
				return filepath.SkipDir
			case strings.HasSuffix(name, ".c") || strings.HasSuffix(name, ".cc") || strings.HasSuffix(name, ".h"):
				text, err := os.ReadFile(path)
				for _, m := range getenv.FindAllStringSubmatch(string(text), -1) {
					found[m[1]] = path
				}
				return err
			case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					text, _ := strconv.Unquote(n.Value)
					if m := launcherVariable.FindStringSubmatch(text); m != nil && n.Kind == token.STRING && !mpiOwn.MatchString(text) {
						found[m[1]] = path
					}
				case *ast.CallExpr:
					f, ok := n.Fun.(*ast.SelectorExpr)
					if ok && (f.Sel.Name == "Getenv" || f.Sel.Name == "LookupEnv") && len(n.Args) == 1 {
						if lit, ok := n.Args[0].(*ast.BasicLit); ok {
							text, _ := strconv.Unquote(lit.Value)
							found[text] = path
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// `drun help environment` names all variables that the sources read, and no others.
func TestEnvironmentIsListed(t *testing.T) {
	text := ""
	for _, topic := range helpTopics() {
		if topic.Use == "environment" {
			text = topic.Long
		}
	}
	listed := regexp.MustCompile(`[A-Z][A-Za-z]*_[A-Za-z0-9_]+|\b(RANK|PATH|TERM|TMPDIR|HOME|GOGC)\b`).FindAllString(text, -1)
	found := variables(t)
	if len(found) < 40 || found["DRUN_KERNEL"] == "" || found["PET_NNODES"] == "" {
		t.Fatalf("the search is broken: it found %v", found)
	}
	for name, path := range found {
		if !slices.Contains(listed, name) && !strings.HasPrefix(name, "DRUN_TEST_") {
			t.Errorf("%s, in %s, is not listed", name, path)
		}
	}
	other := []string{"HOME", "XDG_CONFIG_HOME", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
	for _, name := range listed {
		if found[name] == "" && !slices.Contains(other, name) {
			t.Errorf("%s is listed, and not read", name)
		}
	}
}
