package takeover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// put writes a file below the root directory; a path that ends with a slash is a directory.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, "/") {
		if err := os.MkdirAll(full, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		stops string // empty for none
		notes string // empty for none
		fails string
	}{
		"an empty node": {},
		"volumes that are supported": {files: map[string]string{
			"pods/u/volumes/kubernetes.io~empty-dir/a/":          "",
			"pods/u/volumes/kubernetes.io~projected/b/":          "",
			"pods/u/volumeDevices/kubernetes.io~local-volume/c/": "",
			"pods/u/volumes/kubernetes.io~csi/d/":                "",
		}},
		"a directory that a volume has left": {files: map[string]string{"pods/u/volumes/kubernetes.io~flocker/": ""}},
		"a network filesystem": {
			files: map[string]string{"pods/u-1/volumes/kubernetes.io~flocker/pvc-1/": ""},
			stops: "pod u-1 uses a volume of kubernetes.io/flocker",
		},
		"a raw disk of another plug-in": {
			files: map[string]string{"pods/u-1/volumeDevices/kubernetes.io~rbd/pvc-1/": ""},
			stops: "kubernetes.io/rbd",
		},
		"managers without entries": {files: map[string]string{
			"cpu_manager_state":                          `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
			"memory_manager_state":                       `{"policyName":"None","machineState":{},"checksum":4047769151}`,
			"device-plugins/kubelet_internal_checkpoint": `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`,
			"dra_manager_state":                          `{"Data":"{\"ClaimInfoStateList\":[]}","Checksum":1}`,
		}},
		"exclusive CPUs": {
			files: map[string]string{"cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"u":{"app":"1"}}}`},
			notes: "exclusive CPUs are in use",
		},
		"exclusive CPUs of a whole pod": {
			files: map[string]string{"cpu_manager_state": `{"policyName":"static","podEntries":{"u":{"cpuset":"1"}}}`},
			stops: "PodLevelResourceManagers",
		},
		"pinned memory": {
			files: map[string]string{"memory_manager_state": `{"policyName":"Static","entries":{"u":{"app":[]}}}`},
			notes: "memory is pinned",
		},
		"devices": {
			files: map[string]string{
				"device-plugins/kubelet_internal_checkpoint": `{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}`,
			},
			notes: "devices of device plug-ins are in use",
		},
		"claims": {
			files: map[string]string{
				"dra_manager_state": `{"Data":"{\"ClaimInfoStateList\":[{\"ClaimUID\":\"u\"}]}","Checksum":1}`,
			},
			notes: "devices of resource claims are in use",
		},
		"half a checkpoint": {files: map[string]string{"cpu_manager_state": `{"policyName`}, fails: "cpu_manager_state"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				put(t, root, path, text)
			}
			found, err := Check(&config.Config{RootDir: root, Warnings: []string{"a field has no effect"}})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %q", err, c.fails)
				}
				return
			}
			if err != nil || found[0].Stops || found[0].Text != "a field has no effect" {
				t.Fatal(found, err)
			}
			stops, notes := "", ""
			for _, f := range found[1:] {
				if f.Stops {
					stops += f.Text + "\n"
				} else {
					notes += f.Text + "\n"
				}
			}
			if (notes == "") != (c.notes == "") || !strings.Contains(notes, c.notes) || strings.Count(notes, "\n") > 1 {
				t.Errorf("noted %q, want %q", notes, c.notes)
			}
			if (stops == "") != (c.stops == "") || !strings.Contains(stops, c.stops) || strings.Count(stops, "\n") > 1 {
				t.Errorf("found %q, want %q", stops, c.stops)
			}
		})
	}
}

func TestValueOf(t *testing.T) {
	for text, want := range map[string]string{
		"kubelet":                           "/var/lib/kubelet",
		"kubelet --root-dir=/a/":            "/a",
		"kubelet --v=2 --root-dir /a":       "/a",
		"kubelet -root-dir=/a --root-dir=b": "b",
		"kubelet --root_dir=/a":             "/a",
		"kubelet root-dir=/a":               "/var/lib/kubelet",
	} {
		if got := rootOf(strings.Fields(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestProcesses(t *testing.T) {
	self, ok := read(fmt.Sprint("/proc/", os.Getpid()))
	if !ok || self.Args[0] != os.Args[0] || self.Executable == "" {
		t.Errorf("%+v, %v", self, ok)
	}
	if _, ok := read("/proc/0"); ok {
		t.Error("found what isn't there")
	}
	if p, err := Kubelet(t.TempDir()); err != nil || p.PID != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Up(t.TempDir()); err != nil || p.PID != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMissing(t *testing.T) {
	now := time.Now()
	healths := map[string]topic.DaemonHealth{}
	for _, name := range needed {
		healths[name] = topic.DaemonHealth{State: topic.Healthy, Beat: now}
	}
	if got := missing(healths, now); got != "" {
		t.Errorf("a crew that is well: %q", got)
	}
	delete(healths, "pleg")
	healths["volume"] = topic.DaemonHealth{State: topic.Degraded, Message: "no", Beat: now}
	if got := missing(healths, now); got != "kubelot-pleg: says nothing yet; kubelot-volume: degraded: no" {
		t.Errorf("got %q", got)
	}
}
