package resource

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// environment is that of the container's OCI specification, as the runtime has made it.
func environment(t *testing.T, p *corev1.Pod) []string {
	t.Helper()
	_, id, _ := strings.Cut(kit.Status(p, "app").ContainerID, "://")
	status, err := bed.CRI.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Spec struct {
			Process struct {
				Env []string `json:"env"`
			} `json:"process"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		t.Fatalf("%v: %s", err, status.GetInfo()["info"])
	}
	return info.Spec.Process.Env
}

// CDI devices that a device plugin answers with, and those of a DRA driver, are in the container's OCI specification,
// and in that of the next one after the daemon's death.
func TestCDIDevices(t *testing.T) {
	t.Parallel()
	const name = "toys.test/cdi"
	plugin := bed.DevicePlugin(t, name, "toy-0")
	plugin.CDI = name
	kit.CDI(t, plugin.CDI, "PLUGIN_TOY", "toy-0")
	plugin.Serve()
	devices(t, name, "1", "1")
	driver := bed.DRADriver(t, "cdi.test", "toy-1")
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	spec := strings.Replace(claimingPod, "claims: [{name: toy}]", "limits: {"+name+": 1}, claims: [{name: toy}]", 1)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("both", spec))
	p := ns.Running("both")
	has := func() {
		t.Helper()
		env := environment(t, p)
		for _, want := range []string{"PLUGIN_TOY=toy-0", "TOY=toy-1"} {
			if !slices.Contains(env, want) {
				t.Errorf("the environment is %q, want %s in it", env, want)
			}
		}
	}
	has()
	lists := plugin.Lists()
	killResourceDaemon(t)
	watchedAgain(t, plugin, lists)
	bed.KillContainer(t, p, "app")
	p = ns.Restarted(p, "app", 1)
	has()
	ns.Delete("both", 1)
	ns.Gone(p)
}
