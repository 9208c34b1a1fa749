package criconfig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/env"
)

const hostsPath = "/etc/hosts"

// mounts lists what plugins mount, the container's volumes in the spec's order, the hosts file and the termination log.
func mounts(node *Node, in ContainerInput) ([]*runtimeapi.Mount, error) {
	out := []*runtimeapi.Mount{}
	for _, m := range in.Alone.Mounts {
		out = append(out, &runtimeapi.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly,
		})
	}
	hosts, own := in.HostsFile != "", map[*runtimeapi.Mount]bool{}
	for i := range in.Container.VolumeMounts {
		m, err := volumeMount(node, in, i)
		if err != nil {
			return nil, err
		}
		out, own[m] = append(out, m), in.Volumes[in.Container.VolumeMounts[i].Name].HostIDs
		hosts = hosts && in.Container.VolumeMounts[i].MountPath != hostsPath
	}
	if hosts {
		out = append(out, &runtimeapi.Mount{HostPath: in.HostsFile, ContainerPath: hostsPath, SelinuxRelabel: node.SELinux})
	}
	if in.TerminationLog != "" && in.Container.TerminationMessagePath != "" {
		out = append(out, &runtimeapi.Mount{
			HostPath: in.TerminationLog, ContainerPath: absolute(in.Container.TerminationMessagePath),
			SelinuxRelabel: node.SELinux,
		})
	}
	if in.UserNamespace != nil {
		for _, m := range out {
			if !own[m] {
				m.UidMappings, m.GidMappings = in.UserNamespace.Uids, in.UserNamespace.Gids
			}
		}
	}
	return out, nil
}

// volumeMount builds the mount at one index of the container's volumeMounts.
func volumeMount(node *Node, in ContainerInput, index int) (*runtimeapi.Mount, error) {
	mount := &in.Container.VolumeMounts[index]
	volume, ok := in.Volumes[mount.Name]
	if !ok {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", mount.Name, in.Container.Name)
	}
	mode, err := propagation(mount.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := RecursiveReadOnly(mount, in.RecursiveReadOnly)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	subPath, err := subPath(mount, in.Env)
	if err != nil {
		return nil, err
	}
	m := &runtimeapi.Mount{
		ContainerPath:     absolute(mount.MountPath),
		Readonly:          mount.ReadOnly || volume.ReadOnly,
		RecursiveReadOnly: recursive,
		SelinuxRelabel:    volume.SELinuxRelabel && node.SELinux,
		Propagation:       mode,
	}
	switch {
	case volume.Image != "":
		m.Image, m.ImageSubPath, m.Readonly = in.ImageVolumes[mount.Name], subPath, true
		if m.Image == nil {
			return nil, fmt.Errorf("the image of volume %q isn't there to mount into container %q",
				mount.Name, in.Container.Name)
		}
	case subPath != "":
		m.HostPath = in.SubPaths[index]
	default:
		m.HostPath = volume.HostPath
	}
	if m.Image == nil && m.HostPath == "" {
		if subPath != "" {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", mount.Name, in.Container.Name)
		}
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", mount.Name, in.Container.Name)
	}
	return m, nil
}

// SubPaths lists the container's mounts whose subPath the volume daemon has to open safely, with subPathExpr
// expanded: the mounts of a volume.subpath request. Mounts of image volumes aren't in it; the runtime resolves them.
// It needs Container, Env and Volumes of the input.
func SubPaths(in ContainerInput) ([]topic.SubPath, error) {
	var out []topic.SubPath
	for i := range in.Container.VolumeMounts {
		m := &in.Container.VolumeMounts[i]
		path, err := subPath(m, in.Env)
		if err != nil {
			return nil, err
		}
		if path == "" || in.Volumes[m.Name].Image != "" {
			continue
		}
		out = append(out, topic.SubPath{Index: i, Volume: m.Name, SubPath: path, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// subPath gives the mount's path below its volume, empty for the whole of it (KEP-559 for subPathExpr).
func subPath(m *corev1.VolumeMount, vars []*runtimeapi.KeyValue) (string, error) {
	path := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		if path, err = env.ExpandSubPath(m.SubPathExpr, vars); err != nil {
			return "", err
		}
	}
	switch {
	case path == "":
		return "", nil
	case filepath.IsAbs(path):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", path)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", path)
	}
	return path, nil
}

// propagation translates VolumeMount.mountPropagation; private is the default.
func propagation(mode *corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

// RecursiveReadOnly decides on VolumeMount.recursiveReadOnly (KEP-3857); supported reports whether the runtime can do
// it.
func RecursiveReadOnly(m *corev1.VolumeMount, supported bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	const asked = "volume %q requested recursive read-only mode, but "
	if !m.ReadOnly {
		return false, fmt.Errorf(asked+"it is not read-only", m.Name)
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		return false, fmt.Errorf(asked+"it is not compatible with propagation %q", m.Name, *p)
	}
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf(asked+"it is not supported by the runtime", m.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
}

func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}
