package disttest_test

import (
	"testing"

	"drun/collective/disttest"
)

func TestConformanceOfSharedMemory(t *testing.T) { disttest.Conformance(t, disttest.InProcess) }
