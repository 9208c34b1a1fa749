package csi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

// mountLabel is the SELinux label that all files of the volume get by a mount option, so that the runtime needn't give
// it to one after the other. It is empty if the runtime has to: the driver must say that it can do it, only one pod may
// have the volume, and the pod must want it.
func (v *Volumes) mountLabel(t task, r plugin.Request) (string, error) {
	if t.block || !t.persistent || t.object == nil || t.object.Spec.SELinuxMount == nil || !*t.object.Spec.SELinuxMount ||
		!slices.Equal(t.modes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
		return "", nil
	}
	return v.ports.Labels.OfVolume(r.Pod, r.Volume.Name)
}

// mountFlags are the mount options for the driver.
func (t target) mountFlags() []string {
	if t.label == "" {
		return t.options
	}
	// Without quotes, the kernel would take the label's comma for the next option.
	return append(slices.Clip(t.options), fmt.Sprintf("context=%q", t.label))
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
