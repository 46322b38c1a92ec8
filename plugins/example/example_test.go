package main

import (
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/internal/enginetest"
)

var examples = enginetest.InProcess(false, func(int) collective.Backend { return backend{} })

func TestConformance(t *testing.T) { disttest.Conformance(t, examples) }

func TestCloseAtAnyTime(t *testing.T) { disttest.Disorder(t, examples) }
