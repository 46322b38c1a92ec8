// Package docs has the pages of the documentation that drun itself reads.
package docs

import _ "embed"

// FromPyTorch is the page for those who know PyTorch.
//
//go:embed from-pytorch.md
var FromPyTorch string
