// Package selinux finds the SELinux labels that volumes can be mounted with (KEP-1710).
//
// Reads: the SELinux configuration of the node, by the library of the container runtimes. Writes and owns nothing.
//
// Guarantees: without SELinux on the node there is no label.
package selinux

import (
	"fmt"
	"slices"

	kernel "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	corev1 "k8s.io/api/core/v1"

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
			return "", fmt.Errorf("make an SELinux label of %q: %w", options, err)
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

// OfVolume is the label that all containers of the pod want for its volume of that name; empty if the files are to be
// labeled one by one, or if none of them says what the label is. They may not want two.
func (l Labels) OfVolume(pod *corev1.Pod, volume string) (string, error) {
	if l == nil || wantsRelabeling(pod) {
		return "", nil
	}
	found := ""
	for container := range podspec.Containers(&pod.Spec) {
		wanted := optionsOf(pod, container)
		if wanted == nil || !mounts(container, volume) {
			continue
		}
		label, err := l(wanted)
		if err != nil {
			return "", err
		}
		if found != "" && label != "" && label != found {
			return "", fmt.Errorf("its containers want two SELinux labels for volume %s, %q and %q: give them the same "+
				"seLinuxOptions, or the pod seLinuxChangePolicy: Recursive", volume, found, label)
		}
		if label != "" {
			found = label
		}
	}
	return found, nil
}

func mounts(container *corev1.Container, volume string) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

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
