package std

import (
	"strings"
	"testing"

	"go.starlark.net/starlark"
)

// A function can be asked for before the folder's names are listed, as builtins in Go do; one that is not there is an error.
func TestFunctionFirst(t *testing.T) {
	l := New(starlark.StringDict{})
	if _, err := l.Function("methods", "no_such"); err == nil || !strings.Contains(err.Error(), "methods has no function no_such") {
		t.Error(err)
	}
	if folders["methods"].in["lerp"] == nil {
		t.Error("the folder was not read")
	}
}

// Every function is documented, has as many parameters as its signature, and no other folder of tensors has its name.
func TestSignatures(t *testing.T) {
	for dir, receiver := range map[string]string{"methods": "self", "tensor": "", "linalg": "", "functional": "", "nn": ""} {
		if n := len(Defs(dir)); n < 20 {
			t.Errorf("%s has only %d functions", dir, n)
		}
		seen := map[string]bool{}
		for _, d := range Defs(dir) {
			name := d.Name()
			text := string(folders[dir].in[name].text)
			_, after, _ := strings.Cut(text, "\ndef "+name+"(")
			head, _, _ := strings.Cut(after, "):\n")
			var params []string
			for p := range strings.SplitSeq(head, ",") {
				if p = strings.TrimLeft(strings.TrimSpace(p), "*"); p != "" && p != receiver {
					params = append(params, p)
				}
			}
			if want := d.Params(); len(params) < len(want) || !strings.HasPrefix(strings.Join(params, " ")+" ", strings.Join(want, " ")+" ") && !strings.Contains(head, "*") {
				t.Errorf("%s.%s has the parameters %q, and its signature %q", dir, name, params, want)
			}
			if d.Doc == "" || seen[name] {
				t.Errorf("%s.%s is not documented, or there twice", dir, name)
			}
			seen[name] = true
		}
	}
}
