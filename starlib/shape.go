package starlib

import (
	"fmt"
	"slices"
	"strings"
)

// Fits reports what is wrong with the arguments of a call, in the words that the
// call itself would use: too many, an unknown or repeated name, a missing one.
// spread says that *args or **kwargs are passed too, which may hold any argument
// not given otherwise.
func (d *Def) Fits(positional int, names []string, spread bool) error {
	sig, err := d.signature()
	if err != nil {
		return err
	}
	if positional > sig.positional && !sig.rest {
		return fmt.Errorf("got %d arguments, want at most %d: %s", positional, sig.positional, sig.text)
	}
	for i, name := range names {
		at := sig.index(name)
		switch {
		case at < 0 && !sig.kwargs:
			return sig.unexpected(name)
		case at >= 0 && at < min(positional, sig.positional), slices.Contains(names[:i], name):
			return fmt.Errorf("argument %s is given twice", name)
		}
	}
	for i, p := range sig.params {
		if p.value == nil && !spread && (i >= sig.positional || i >= positional) && !slices.Contains(names, p.name) {
			return fmt.Errorf("missing argument %s: %s", p.name, sig.text)
		}
	}
	return nil
}

// Params lists the names of the parameters, in order.
func (d *Def) Params() []string {
	sig, err := d.signature()
	if err != nil {
		return nil
	}
	names := make([]string, len(sig.params))
	for i, p := range sig.params {
		names[i] = p.name
	}
	return names
}

// Returns is the declared type of the result, "" without.
func (d *Def) Returns() string {
	_, result, _ := strings.Cut(d.Sig, "->")
	return strings.TrimSpace(result)
}
