package ui

import (
	"os"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// bed has the crew whose pods are shown.
var bed *kit.Bed

func TestMain(m *testing.M) {
	os.Exit(kit.Main(m, &bed, kit.Options{Standalone: true, Registry: true}))
}
