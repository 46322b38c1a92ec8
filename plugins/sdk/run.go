package sdk

import (
	"fmt"
	"os"

	"drun/collective"
)

func serve(backend collective.Backend) {
	fmt.Fprintf(os.Stderr, "drun-backend-%s is a plugin of drun, which starts it: drun run RECIPE.star --backend %s\n", backend.Name(), backend.Name())
	os.Exit(1)
}
