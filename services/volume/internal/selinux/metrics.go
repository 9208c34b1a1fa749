package selinux

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// counts are the kubelet's metrics about labels, by the access mode and for some also by the kind of the volume. They
// count tries, so that a pod that is refused counts each time.
type counts struct {
	admitted                  *prometheus.GaugeVec
	containers, pods, volumes conflict
}

// conflict is why a volume can't be mounted with a label, as an error and as a warning. It is a warning where the
// volume is mounted without one because of its access modes.
type conflict struct{ errors, warnings *prometheus.GaugeVec }

const (
	prefix = "volume_manager_selinux_"
	// refused and noted end the help of errors and warnings.
	refused = " The pod waits, and each try counts."
	noted   = " Because of the volume's access modes it has no label. With the feature gate SELinuxMount it is an error."
)

func newCounts() counts {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name + "_total", Help: "[ALPHA] " + help}, labels)
	}
	both := func(name, help string, labels ...string) conflict {
		return conflict{gauge(name+"_errors", help+refused, labels...), gauge(name+"_warnings", help+noted, labels...)}
	}
	const mode, kind = "access_mode", "volume_plugin"
	return counts{
		admitted: gauge("volumes_admitted", "Volumes whose pods want one SELinux label, with which they can be mounted.",
			kind, mode),
		containers: both("container", "Containers whose SELinux label can't be made.", mode),
		pods: both("pod_context_mismatch", "Pods whose containers want different SELinux labels for one volume.",
			mode),
		volumes: both("volume_context_mismatch", "Pods that want another SELinux label for a volume than those before.",
			kind, mode),
	}
}

func (c counts) all() []prometheus.Collector {
	return []prometheus.Collector{
		c.admitted, c.containers.errors, c.containers.warnings, c.pods.errors, c.pods.warnings, c.volumes.errors,
		c.volumes.warnings,
	}
}

// admit counts a volume that no pod has wanted before.
func (c counts) admit(v Volume, label string) {
	if label != "" {
		c.admitted.WithLabelValues(v.Plugin, modeOf(v)).Inc()
	}
}

func (c conflict) add(isError bool, labels ...string) {
	vec := c.warnings
	if isError {
		vec = c.errors
	}
	vec.WithLabelValues(labels...).Inc()
}

// modeOf is the widest access mode, in short.
func modeOf(v Volume) string {
	if len(v.Modes) == 0 {
		return "inline"
	}
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(v.Modes, m.mode) {
			return m.short
		}
	}
	return ""
}
