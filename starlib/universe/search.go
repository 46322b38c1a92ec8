package universe

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"drun/internal/each"
	"drun/starlib/lang"
)

// Path returns the name by which recipes and the command line know the entry: "dist.all_reduce".
func (e Entry) Path() string {
	if e.Owner == "" {
		return e.Name
	}
	return e.Owner + "." + e.Name
}

// Declaration returns the signature with the entry's full name: "dist.barrier(group: Group = None)".
func (e Entry) Declaration() string { return e.Path() + strings.TrimPrefix(e.Signature, e.Name) }

// Search finds the entries in which every word of a text occurs, best matches first: a word counts most
// as the whole name, then at its beginning, within it, in the signature, and in the documentation. Case does not
// matter, and neither do dots and underscores of names, so "DataLoader" finds data.loader.
func (all Entries) Search(text string) Entries {
	type hit struct {
		Entry
		score int
	}
	var hits []hit
	words := strings.Fields(text)
	for _, e := range all {
		score := 0
		for _, w := range words {
			s := e.score(w)
			if s == 0 {
				score = 0
				break
			}
			score += s
		}
		if score > 0 {
			hits = append(hits, hit{e, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(b.score-a.score, len(a.Path())-len(b.Path()), strings.Compare(a.Path(), b.Path()))
	})
	return each.Of(hits, func(h hit) Entry { return h.Entry })
}

// score returns how well a word matches the entry; 0: not at all.
func (e Entry) score(word string) int {
	if word == e.Name || word == e.Path() {
		return 110
	}
	word = strings.ToLower(word)
	bare := strings.NewReplacer(".", "", "_", "")
	name, path, plain := strings.ToLower(e.Name), strings.ToLower(e.Path()), bare.Replace(word)
	switch {
	case word == name || word == path:
		return 100
	case plain == "":
		return 0
	case plain == bare.Replace(name) || plain == bare.Replace(path):
		return 90
	case strings.HasPrefix(bare.Replace(name), plain):
		return 50
	case strings.Contains(bare.Replace(path), plain):
		return 30
	case strings.Contains(strings.ToLower(e.Signature), word):
		return 10
	case strings.Contains(strings.ToLower(e.Doc), word):
		return 5
	}
	return 0
}

func (all Entries) Without(these Entries) Entries {
	return slices.DeleteFunc(slices.Clone(all), func(e Entry) bool { return slices.Contains(these, e) })
}

// Instead says what to use instead of one of PyTorch's names, such as torch.nn.MSELoss, and finds the entries that this
// mentions; says is "" if the name is unknown.
func (all Entries) Instead(name string) (says string, found Entries) {
	says, found = lang.ForeignMethod("module", name[strings.LastIndex(name, ".")+1:]), Entries{}
	for _, path := range dotted.FindAllString(says, -1) {
		for _, e := range all {
			if e.Path() == path {
				found = append(found.Without(Entries{e}), e)
			}
		}
	}
	return says, found
}

var dotted = regexp.MustCompile(`[A-Za-z]\w*\.\w+`)

// Summary returns the first sentence of the documentation.
func (e Entry) Summary() string {
	line, _, _ := strings.Cut(strings.ReplaceAll(e.Doc, "\n", " "), ". ")
	return strings.TrimSuffix(line, ".")
}
