package universe

import (
	"slices"
	"testing"
)

func TestFind(t *testing.T) {
	all := Reference()
	for _, c := range []struct {
		name  string
		has   []string // owner.name
		hasNo []string
	}{
		{"dist.all_reduce", []string{"dist.all_reduce"}, []string{"dist.barrier", "store.get"}},
		{"dist", []string{".dist", "dist.barrier", "dist.store"}, []string{"store.get"}},
		{"dist.store", []string{"dist.store", ".store", "store.get", "store.multi_set"}, []string{"dist.barrier"}},
		{"dist.store.get", []string{"store.get"}, []string{"store.set", "dist.store"}},
		{"store.get", []string{"store.get"}, []string{"store.set"}},
		{"all_reduce", []string{"dist.all_reduce"}, []string{"dist.reduce"}},
		{"dist.store.nothing", nil, []string{"store.get"}},
	} {
		var found []string
		for _, e := range all.Find(c.name) {
			found = append(found, e.Owner+"."+e.Name)
		}
		for _, name := range c.has {
			if !slices.Contains(found, name) {
				t.Errorf("Find(%q) has no %s", c.name, name)
			}
		}
		for _, name := range c.hasNo {
			if slices.Contains(found, name) {
				t.Errorf("Find(%q) has %s", c.name, name)
			}
		}
		if c.has == nil && len(found) > 0 {
			t.Errorf("Find(%q): %v", c.name, found)
		}
	}
}
