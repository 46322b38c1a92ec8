package spelling

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"momentum", "lr", "Loss", "lass", "weight_decay"}
	for name, want := range map[string]string{
		"momentun": "momentum", "MOMENTUM": "momentum", "mmntum": "momentum", "mntm": "", "loss": "Loss", "LASS": "lass",
		"lx": "lr", "r": "", "x": "", "": "", "weightdecay": "weight_decay", "learning_rate": "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3},
		{"ab", "ba", 1}, {"calm-otetr", "calm-otter", 1}, {"né", "ne", 1}, {"abcd", "acbd", 1},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
