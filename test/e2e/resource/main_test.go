package resource

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// bed is shared by all tests. CPU 0 is the system's, the others are given away.
var bed *kit.Bed

func TestMain(m *testing.M) {
	os.Exit(kit.Main(m, &bed, kit.Options{Config: `reservedSystemCPUs: "0"
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
featureGates: {PodsAPI: true}
`}))
}

// resourceDaemon keeps tests that kill the daemon away from tests that count what one process of it does. A test that
// kills it locks it for writing, a test that counts locks it for reading.
var resourceDaemon sync.RWMutex

func killResourceDaemon(t *testing.T) {
	t.Helper()
	resourceDaemon.Lock()
	defer resourceDaemon.Unlock()
	bed.Signal(t, "resource", syscall.SIGKILL)
}

// undisturbed keeps others from killing the daemon until the function that it returns is called, or the test ends.
func undisturbed(t *testing.T) (over func()) {
	resourceDaemon.RLock()
	over = sync.OnceFunc(resourceDaemon.RUnlock)
	t.Cleanup(over)
	return over
}

// pod makes a manifest: what every test's pod has, and the rest of its spec as indented YAML. $FOREVER is replaced.
func pod(name, spec string) string {
	const forever = `["sh", "-c", 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']`
	manifest := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  terminationGracePeriodSeconds: 5\n" +
		spec
	return strings.ReplaceAll(manifest, "$FOREVER", forever)
}
