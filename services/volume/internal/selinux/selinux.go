// Package selinux finds the SELinux labels that volumes are mounted with (KEP-1710).
//
// Reads: the SELinux configuration of the node, by the library of the container runtimes, and the table of mounts.
// Writes and owns nothing.
//
// Guarantees: without SELinux on the node there is no label. Of the pods that share a volume on the node, none gets it
// with a label that another doesn't want.
package selinux

import (
	"fmt"
	"slices"
	"strings"

	kernel "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/daemon/podspec"
)

// Labels makes the label of files from what a container asks for; empty where it asks for nothing. It is nil on a node
// without SELinux.
type Labels func(*corev1.SELinuxOptions) (string, error)

// OfNode makes the labels of this node.
func OfNode() Labels {
	if !kernel.GetEnabled() {
		return nil
	}
	return func(o *corev1.SELinuxOptions) (string, error) {
		options := options(o)
		if len(options) == 0 {
			return "", nil // each container gets a label of its own
		}
		process, file, err := label.InitLabels(options)
		if err != nil {
			return "", fmt.Errorf("failed to construct SELinux label from context %q: %w", options, err)
		}
		// InitLabels reserves the label's level in this process. Only container runtimes need that.
		kernel.ReleaseLabel(process)
		return file, nil
	}
}

// options are the library's words for what a container asks for.
func options(o *corev1.SELinuxOptions) []string {
	var list []string
	for _, option := range [][2]string{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
		if option[1] != "" {
			list = append(list, option[0]+":"+option[1])
		}
	}
	return list
}

// ofVolume are the labels that containers of the pod want for its volume of that name; none if the files are to be
// labeled one by one, or if no container says what it wants. One is empty where a container wants a label of its own.
func (l Labels) ofVolume(pod *corev1.Pod, volume string) ([]string, error) {
	if wantsRelabeling(pod) {
		return nil, nil
	}
	var found []string
	for container := range podspec.Containers(&pod.Spec) {
		wanted := optionsOf(pod, container)
		if wanted == nil || !mounts(container, volume) {
			continue
		}
		label, err := l(wanted)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, label) {
			found = append(found, label)
		}
	}
	return found, nil
}

func mounts(container *corev1.Container, volume string) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// Mounted is the label that what is mounted at path was mounted with; empty for none.
func Mounted(path string) (string, error) {
	options, err := mountpoint.Options(path)
	return labelIn(options), err
}

// labelIn finds the label among mount options. The kernel puts one that has a comma in quotes.
func labelIn(options string) string {
	_, label, found := strings.Cut(","+options, ",context=")
	if !found {
		return ""
	}
	if quoted, isQuoted := strings.CutPrefix(label, `"`); isQuoted {
		label, _, _ = strings.Cut(quoted, `"`)
		return label
	}
	label, _, _ = strings.Cut(label, ",")
	return label
}

// Option is the mount option for the label. Without quotes, the kernel would take the label's comma for the next one.
func Option(label string) string { return fmt.Sprintf("context=%q", label) }

func wantsRelabeling(pod *corev1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive
}

// optionsOf are the container's own options, or else the pod's.
func optionsOf(pod *corev1.Pod, container *corev1.Container) *corev1.SELinuxOptions {
	if sc := container.SecurityContext; sc != nil && sc.SELinuxOptions != nil {
		return sc.SELinuxOptions
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.SELinuxOptions
	}
	return nil
}
