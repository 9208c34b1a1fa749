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
	Stops bool   `json:"stops"`
	Text  string `json:"text"`
}

// volumes are the directories of the volume plug-ins that kubelot's volume daemon has, below volumes and volumeDevices.
var volumes = []string{
	"kubernetes.io~configmap", "kubernetes.io~csi", "kubernetes.io~downward-api", "kubernetes.io~empty-dir",
	"kubernetes.io~fc", "kubernetes.io~iscsi", "kubernetes.io~local-volume", "kubernetes.io~nfs",
	"kubernetes.io~projected", "kubernetes.io~secret",
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
		of, err := m.find(c)
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
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
// kubelot-resource reads and writes the same files.
type manager struct {
	what, file string
	// entries finds what was given away in the file's JSON.
	entries func(file map[string]json.RawMessage) int
}

var managers = []manager{
	{"exclusive CPUs are in use", "cpu_manager_state", members("entries")},
	{"memory is pinned to NUMA nodes", "memory_manager_state", members("entries")},
	{"devices of device plug-ins are in use", devicesFile, func(file map[string]json.RawMessage) int {
		var data struct {
			PodDeviceEntries []json.RawMessage `json:"PodDeviceEntries"`
		}
		_ = json.Unmarshal(file["Data"], &data) // what has another shape has no such entries
		return len(data.PodDeviceEntries)
	}},
	{"devices of resource claims are in use", "dra_manager_state", claims},
}

const (
	// devicesFile is in the directory of the plug-ins' sockets, the others are in the root directory.
	devicesFile = "kubelet_internal_checkpoint"
	devicesDir  = "device-plugins"
)

func members(field string) func(map[string]json.RawMessage) int {
	return func(file map[string]json.RawMessage) int {
		var byPod map[string]json.RawMessage
		_ = json.Unmarshal(file[field], &byPod) // what has another shape has no entries
		return len(byPod)
	}
}

// claims counts those that are prepared: the file has their list as a text, with its sum.
func claims(file map[string]json.RawMessage) int {
	var text string
	var data struct {
		ClaimInfoStateList []json.RawMessage `json:"ClaimInfoStateList"`
	}
	if json.Unmarshal(file["Data"], &text) != nil || json.Unmarshal([]byte(text), &data) != nil {
		return 0
	}
	return len(data.ClaimInfoStateList)
}

// path is where the manager's file is. Device plug-ins look for their directory where it always is, whatever --root-dir
// says; an agent with a run directory of its own is a second one on the machine.
func (m manager) path(c *config.Config) string {
	switch {
	case m.file != devicesFile:
		return filepath.Join(c.RootDir, m.file)
	case c.RunDir == config.RunDir:
		return filepath.Join(config.RootDir, devicesDir, m.file)
	}
	return filepath.Join(c.RootDir, devicesDir, m.file)
}

// find says what of the manager's is in use. kubelot-resource takes it over. What it can't read it would give away
// again while pods have it, so that is a reason not to begin.
func (m manager) find(c *config.Config) ([]Finding, error) {
	path := m.path(c)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint %s: %w", path, err)
	}
	if members("podEntries")(file) > 0 {
		return []Finding{{true, fmt.Sprintf("%s (%s) by whole pods: only a kubelet with the feature gate "+
			"PodLevelResourceManagers keeps that; drain the node first", m.what, path)}}, nil
	}
	if m.entries(file) == 0 {
		return nil, nil
	}
	return []Finding{{false, fmt.Sprintf("%s (%s): kubelot-resource takes that over", m.what, path)}}, nil
}
