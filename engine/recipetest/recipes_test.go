package recipetest

import "testing"

func TestMain(m *testing.M) { Main(m) }

func TestRecipes(t *testing.T) { Run(t, "testdata", "shm") }
