package cri

import "testing"

// containerd before 2.0 tells the image of sandboxes in its configuration. Anything else tells nothing.
func TestSandboxImage(t *testing.T) {
	const pause = "registry.k8s.io/pause:3.6"
	for config, want := range map[string]string{
		`{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"` + pause + `","statsCollectPeriod":10}`: pause,
		`{"containerd":{}}`: "", "[crio]\nroot = \"/\"": "", `{"sandboxImage":1}`: "", "": "",
	} {
		if got := sandboxImage(map[string]string{"config": config}); got != want {
			t.Errorf("%q: %q, want %q", config, got, want)
		}
	}
	if got := sandboxImage(nil); got != "" {
		t.Errorf("without info: %q", got)
	}
}
