package e2e

import (
	"os"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// bed is shared by all tests.
var bed *kit.Bed

func TestMain(m *testing.M) {
	os.Exit(kit.Main(m, &bed, kit.Options{Registry: true}))
}

// forever is a shell command that ends at once when told to.
const forever = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`

// pod makes a manifest: what every test's pod has, and the rest of its spec as indented YAML. $FOREVER is replaced.
func pod(name, spec string) string {
	manifest := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  terminationGracePeriodSeconds: 5\n" +
		spec
	return strings.ReplaceAll(manifest, "$FOREVER", "["+`sh, -c, '`+forever+`']`)
}

// patient gives pods a grace period that no busy machine uses up: for tests of what happens in it.
func patient(manifests string) string {
	return strings.ReplaceAll(manifests, "terminationGracePeriodSeconds: 5\n", "terminationGracePeriodSeconds: 600\n")
}
