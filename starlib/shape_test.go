package starlib_test

import (
	"slices"
	"strings"
	"testing"

	"drun/starlib"
)

func TestFits(t *testing.T) {
	d := &starlib.Def{Sig: `f(a, b: int = 1, *, c, d = None) -> list`}
	rest := &starlib.Def{Sig: `g(a, *rest, **named)`}
	linear := &starlib.Def{Sig: `linear(i: int, o: int)`} // PyTorch's in_features and out_features
	for _, c := range []struct {
		def    *starlib.Def
		args   int
		names  string
		spread bool
		want   string // part of the error, "" none
	}{
		{d, 1, "c", false, ""},
		{d, 2, "d c", false, ""},
		{d, 0, "a b c", false, ""},
		{d, 3, "c", false, "got 3 arguments, want at most 2"},
		{d, 1, "", false, "missing argument c"},
		{d, 0, "c", false, "missing argument a"},
		{d, 1, "c e", false, "unexpected argument e"},
		{d, 1, "a c", false, "argument a is given twice"},
		{d, 0, "", true, ""},
		{d, 0, "x", true, "unexpected argument x"},
		{rest, 9, "x y", false, ""},
		{linear, 0, "in_features out_features", false, ""},
		{linear, 1, "in_features out_features", false, "argument in_features is given twice"},
		{linear, 0, "i in_features", false, "argument in_features is given twice"},
		{linear, 0, "in_features", false, "missing argument o"},
		{rest, 0, "x", false, "missing argument a"},
	} {
		err := c.def.Fits(c.args, strings.Fields(c.names), c.spread)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %d and %q: %v, want %q", c.def.Sig, c.args, c.names, err, c.want)
		}
	}
	if got := d.Params(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("parameters %q", got)
	}
	if d.Returns() != "list" || rest.Returns() != "" {
		t.Errorf("results %q, %q", d.Returns(), rest.Returns())
	}
}
