package volume

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

// nodeEvents are recorded Events as they are.
type nodeEvents struct{ list []topic.Event }

func (r *nodeEvents) Record(e topic.Event) { r.list = append(r.list, e) }

func TestVolumesThatMayBeSwappedAreReported(t *testing.T) {
	const (
		heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
		device  = "/dev/sda2                               partition\t1000\t\t0\t\t-2\n"
	)
	unknown := errors.New("set the option noswap of a tmpfs: invalid argument")
	want := []topic.Event{{
		Kind: "Node", Ref: topic.Ref{Name: "n1", UID: "n1"}, Type: "Warning", Reason: "PossibleMemoryBackedVolumesOnDisk",
		Message: "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be " +
			"swapped to disk and should no longer be considered secure.",
	}}
	for name, c := range map[string]struct {
		swaps    string // "" is no file
		failOn   bool
		noswap   error
		reported bool
	}{
		"swap and an old kernel":            {heading + device, false, unknown, true},
		"two swaps and an old kernel":       {heading + device + device, false, unknown, true},
		"swap and a new kernel":             {heading + device, false, nil, false},
		"no swap":                           {heading, false, unknown, false},
		"a kernel without swap":             {"", false, unknown, false},
		"swap that keeps podsync from pods": {heading + device, true, unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "swaps")
			if c.swaps != "" {
				if err := os.WriteFile(file, []byte(c.swaps), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg := &config.Config{NodeName: "n1"}
			cfg.Kubelet.FailSwapOn = &c.failOn
			events := &nodeEvents{}
			warnOfSwap(daemon.Env{Config: cfg, Events: events, Log: slog.New(slog.DiscardHandler)}, file,
				func() error { return c.noswap })
			if !c.reported && len(events.list) > 0 || c.reported && !reflect.DeepEqual(events.list, want) {
				t.Errorf("recorded are %v", events.list)
			}
		})
	}
}
