package check

import (
	"errors"
	"maps"
	"slices"

	"drun/engine/recipe"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/testing"
	"drun/starlib/universe"
)

// Recipes checks recipes that engine/recipe has read.
type Recipes struct {
	plain *Reference
	tests *Reference // for recipes with functions test_*
}

// NewRecipes makes a checker that can be used for any number of recipes.
func NewRecipes() *Recipes {
	modules, names := universe.Modules(), universe.Names()
	module, with := testing.Module(""), maps.Clone(names)
	with[module.Name] = module.Build(&starlib.Rank{WorldSize: 1})
	return &Recipes{NewReference(modules, names), NewReference(append(modules, module), with)}
}

// Inspect checks a recipe as far as it could be read; b is nil if it could not. A library needs no main. The shapes
// are those of [Inspect]. err is an error of reading that has no position.
func (r *Recipes) Inspect(b *recipe.Bundle, faults []error, library bool) (found []Finding, shapes map[Position]string, err error) {
	for _, fault := range faults {
		if located := (*lang.Error)(nil); errors.As(fault, &located) {
			found = append(found, FromError(located)...)
		} else if err == nil {
			err = fault
		}
	}
	if b == nil {
		return found, nil, err
	}
	var files []File
	for _, s := range b.Sources {
		if parsed, err := lang.Parse(recipe.Display(b.Name, s.Path), s.Content); err == nil {
			files = append(files, File{s.Path, parsed})
		}
	}
	ref := r.plain
	if recipe.HaveTests(b.Sources) {
		ref = r.tests
	}
	more, shapes := Inspect(ref, files, b.Project.Resolve)
	if library {
		more = slices.DeleteFunc(more, func(f Finding) bool { return f.Message == NoMain })
	}
	return Sort(append(found, more...)), shapes, err
}
