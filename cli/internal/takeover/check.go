package takeover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubelot.dev/daemon/config"
)

// Finding is something that an administrator must know before kubelot takes the node over.
type Finding struct {
	// Stops is true for a reason not to begin.
	Stops bool
	Text  string
}

// volumes are the directories of the volume plug-ins that kubelot's volume daemon has, below volumes and volumeDevices.
var volumes = []string{
	"kubernetes.io~configmap", "kubernetes.io~csi", "kubernetes.io~downward-api", "kubernetes.io~empty-dir",
	"kubernetes.io~local-volume", "kubernetes.io~projected", "kubernetes.io~secret",
}

// Check looks at the node. The error says that it can't be looked at.
func Check(c *config.Config) ([]Finding, error) {
	var found []Finding
	for _, warning := range c.Warnings {
		found = append(found, Finding{Text: warning})
	}
	if _, err := os.Stat(filepath.Join(c.RootDir, "kubeadm-flags.env")); err == nil {
		found = append(found, Finding{Text: "kubeadm looks after this node: whoever starts kubelet.service again, as after " +
			"kubeadm upgrade node, has the kubelet back, and kubelot stops; the package kubelot-kubelet is kubelot by that " +
			"name"})
	}
	used, err := usedVolumes(c.RootDir)
	if err != nil {
		return nil, err
	}
	found = append(found, used...)
	for _, m := range managers {
		in, err := m.inUse(c.RootDir)
		if err != nil {
			return nil, err
		}
		if in {
			found = append(found, Finding{true, fmt.Sprintf("%s (%s): kubelot doesn't keep that yet; drain the node first",
				m.what, filepath.Join(c.RootDir, m.file))})
		}
	}
	return found, nil
}

// usedVolumes are volumes of pods that are there now and that kubelot can't look after.
func usedVolumes(root string) ([]Finding, error) {
	var found []Finding
	for _, kind := range []string{"volumes", "volumeDevices"} {
		plugins, err := filepath.Glob(filepath.Join(root, "pods", "*", kind, "*"))
		if err != nil {
			return nil, err
		}
		for _, dir := range plugins {
			name := filepath.Base(dir)
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("look at the volumes of the pods: %w", err)
			}
			if len(entries) > 0 && !slices.Contains(volumes, name) {
				uid := filepath.Base(filepath.Dir(filepath.Dir(dir)))
				found = append(found, Finding{true, fmt.Sprintf("pod %s uses a volume of %s, which kubelot doesn't support yet: "+
					"it would stay mounted, and the pod would not start again; drain the node first", uid,
					strings.Replace(name, "~", "/", 1))})
			}
		}
	}
	return found, nil
}

// manager is one of the kubelet's resource managers, with the file in which it keeps what it gave away.
type manager struct {
	what, file string
	// entries finds what was given away in the file's JSON.
	entries func(file map[string]json.RawMessage) int
}

var managers = []manager{
	{"exclusive CPUs are in use", "cpu_manager_state", members("entries")},
	{"memory is pinned to NUMA nodes", "memory_manager_state", members("entries")},
	{"devices of device plug-ins are in use", "kubelet_internal_checkpoint", func(file map[string]json.RawMessage) int {
		var data struct {
			PodDeviceEntries []json.RawMessage `json:"PodDeviceEntries"`
		}
		_ = json.Unmarshal(file["Data"], &data) // what has another shape has no such entries
		return len(data.PodDeviceEntries)
	}},
	{"devices of resource claims are in use", "dra_manager_state", members("entries")},
}

func members(field string) func(map[string]json.RawMessage) int {
	return func(file map[string]json.RawMessage) int {
		var byPod map[string]json.RawMessage
		var list []json.RawMessage
		_, _ = json.Unmarshal(file[field], &byPod), json.Unmarshal(file[field], &list) // it is either
		return len(byPod) + len(list)
	}
}

func (m manager) inUse(root string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var file map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		return false, fmt.Errorf("read the checkpoint %s: %w", filepath.Join(root, m.file), err)
	}
	return m.entries(file) > 0, nil
}
