package stats

import (
	"bytes"
	"strings"
	"testing"

	"kubelot.dev/cri/cgroup"
	"kubelot.dev/cri/cgroup/cgrouptest"
)

// CRI-O names its cgroups otherwise than containerd, and runs no process in most sandboxes.
func TestPodsOfCRIO(t *testing.T) {
	names := strings.NewReplacer(cgrouptest.App, strings.Repeat("0", 64), cgrouptest.Box, "crio-"+cgrouptest.App,
		cgrouptest.Other, "crio-"+cgrouptest.Box)
	tree, err := cgroup.New(cgrouptest.Unpack(t, names.Replace(cgrouptest.V1)), "cgroupfs", "/")
	if err != nil {
		t.Fatal(err)
	}
	v := view{pods: []podView{{
		ref: ref, sandbox: cgrouptest.Box, containers: []containerView{{id: cgrouptest.App, name: "app", running: true}},
	}}}
	u, err := (&cgroups{tree: tree, rates: newRates()}).usage(t.Context(), v, everything)
	if err != nil {
		t.Fatal(err)
	}
	p := u.pods[cgrouptest.UID]
	if app, ok := p.containers[cgrouptest.App]; !ok || app.Memory == nil || app.Memory.Usage == 0 {
		t.Errorf("the container has %+v", app)
	}
	if len(p.network) != 1 || p.network[0].RxBytes != 1086 {
		t.Errorf("the pod's network is %+v", p.network)
	}
	var page bytes.Buffer
	if err := writeCadvisor(&page, &metricsInput{usage: u, view: v}); err != nil {
		t.Fatal(err)
	}
	want := `container_network_receive_bytes_total{container="",id="/kubepods/burstable/pod` + cgrouptest.UID +
		"/crio-" + cgrouptest.Box
	if !strings.Contains(page.String(), want) {
		t.Errorf("no %s in\n%s", want, page.String())
	}
}
