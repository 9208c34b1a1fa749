package csi

import (
	"slices"

	"kubelot.dev/services/volume/internal/attach"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// mountLabel is the SELinux label that all files of the volume get by a mount option, so that the runtime needn't give
// it to one after the other. It is empty if the runtime has to: the driver must say that it can do it, the volume must
// have the access modes for it, and all its pods must want the same.
func (v *Volumes) mountLabel(t task, r plugin.Request) (string, error) {
	if t.block || r.Ending || t.object == nil || t.object.Spec.SELinuxMount == nil || !*t.object.Spec.SELinuxMount {
		return "", nil
	}
	volume := selinux.Volume{ID: t.uniqueName(), Name: t.name, Plugin: pluginName + "/" + t.driver}
	if t.persistent {
		volume.Modes = t.modes
	}
	label, err := v.ports.Labels.Label(r.Pod, r.Volume.Name, volume)
	if err != nil {
		return "", plugin.Unprocessed(r.Volume.Name, err)
	}
	return label, nil
}

// uniqueName is the volume's name in the Node's status.
func (t target) uniqueName() string { return attach.ID{Driver: t.driver, Handle: t.handle}.Name() }

// mountFlags are the mount options for the driver.
func (t target) mountFlags() []string {
	if t.label == "" {
		return t.options
	}
	return append(slices.Clip(t.options), selinux.Option(t.label))
}

func (t target) labeled(r record) record {
	if t.label != "" {
		r[keySELinux] = t.label
	}
	return r
}

// labelOf is the label that the record in dir says the volume is mounted with.
func labelOf(dir string) string {
	r, err := readRecord(dir)
	if err != nil {
		return ""
	}
	return r[keySELinux]
}

// mustRelabel reports whether the volume, which nobody uses, may be staged with a label that the pod doesn't want.
func (d disk) mustRelabel(f facts, t task) bool {
	return t.wanted && f.holders == 0 && f.volume != stepNone && (f.pod == stepNone || f.pod == stepWanted) &&
		labelOf(d.stageDir(t.target)) != t.label
}

// elsewhere says what the pod waits for where other pods have the volume with a label that it doesn't want, such as one
// that goes; empty where they don't.
func (d disk) elsewhere(f facts, t task) string {
	if !t.wanted || t.block || f.holders == 0 || f.volume == stepNone ||
		(f.pod != stepNone && f.pod != stepWanted) || labelOf(d.stageDir(t.target)) == t.label {
		return ""
	}
	return selinux.Elsewhere(t.uniqueName())
}
