package deviceplugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/devices"
)

// checkAllocation reports what no container can have.
func checkAllocation(a *pluginapi.ContainerAllocateResponse) error {
	if size := proto.Size(a); size > maxAllocation {
		return fmt.Errorf("it has %d bytes, at most %d can be kept", size, maxAllocation)
	}
	var errs []error
	for name := range a.GetEnvs() {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			errs = append(errs, fmt.Errorf("%q can't be the name of an environment variable", line(name)))
		}
	}
	for _, m := range a.GetMounts() {
		if m.GetContainerPath() == "" || m.GetHostPath() == "" {
			errs = append(errs, fmt.Errorf("a mount of %q at %q lacks a path", line(m.GetHostPath()),
				line(m.GetContainerPath())))
		}
	}
	for _, d := range a.GetDevices() {
		if d.GetContainerPath() == "" || d.GetHostPath() == "" || strings.Trim(d.GetPermissions(), "rwm") != "" {
			errs = append(errs, fmt.Errorf("the device %q can't be %q with the permissions %q", line(d.GetHostPath()),
				line(d.GetContainerPath()), line(d.GetPermissions())))
		}
	}
	for _, d := range a.GetCdiDevices() {
		if d.GetName() == "" {
			errs = append(errs, errors.New("a CDI device has no name"))
		}
	}
	return errors.Join(errs...)
}

// merger collects what a container's configuration gets. Where several plugins, or one twice, say something of a thing,
// the first says what it is.
type merger struct {
	into      *topic.ContainerAllocation
	env       map[string]string
	mounts    map[string]string
	nodes     map[string]string
	cdi       map[string]bool
	conflicts []string
}

// Merge adds to the container's configuration what plugins have answered about its devices, in the order of the
// answers. Of two that differ about the same variable, path or annotation the first counts, and conflicts names the
// thing. An answer that can't be read is passed over; the error says whose it is.
func Merge(into *topic.ContainerAllocation, answers []devices.Answer) (conflicts []string, err error) {
	m := merger{
		into: into, env: map[string]string{}, mounts: map[string]string{}, nodes: map[string]string{}, cdi: map[string]bool{},
	}
	m.begin()
	var errs []error
	for _, a := range answers {
		var response pluginapi.ContainerAllocateResponse
		if err := proto.Unmarshal(a.Response, &response); err != nil {
			errs = append(errs, fmt.Errorf("read what the device plugin of %s has answered: %w", a.Resource, err))
			continue
		}
		m.add(&response)
	}
	return m.conflicts, errors.Join(errs...)
}

// Answer is what plugins may have answered for a container to have this.
func Answer(has topic.ContainerAllocation) ([]byte, error) {
	a := &pluginapi.ContainerAllocateResponse{Annotations: has.Annotations, Envs: map[string]string{}}
	for _, e := range has.Env {
		a.Envs[e.Name] = e.Value
	}
	for _, m := range has.Mounts {
		a.Mounts = append(a.Mounts, &pluginapi.Mount{
			ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly,
		})
	}
	for _, d := range has.DeviceNodes {
		a.Devices = append(a.Devices, &pluginapi.DeviceSpec{
			ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions,
		})
	}
	for _, name := range has.CDI {
		a.CdiDevices = append(a.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	return proto.Marshal(a)
}

// begin takes what the configuration has already.
func (m *merger) begin() {
	for _, e := range m.into.Env {
		m.env[e.Name] = e.Value
	}
	for _, mount := range m.into.Mounts {
		m.mounts[mount.ContainerPath] = mount.HostPath
	}
	for _, d := range m.into.DeviceNodes {
		m.nodes[d.ContainerPath] = d.HostPath
	}
	for _, name := range m.into.CDI {
		m.cdi[name] = true
	}
}

func (m *merger) add(a *pluginapi.ContainerAllocateResponse) {
	for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
		if value := a.GetEnvs()[name]; m.first(m.env, "the environment variable", name, value) {
			m.into.Env = append(m.into.Env, topic.EnvVar{Name: name, Value: value})
		}
	}
	for _, mount := range a.GetMounts() {
		if m.first(m.mounts, "the mount at", mount.GetContainerPath(), mount.GetHostPath()) {
			m.into.Mounts = append(m.into.Mounts, topic.AllocatedMount{
				ContainerPath: mount.GetContainerPath(), HostPath: mount.GetHostPath(), ReadOnly: mount.GetReadOnly(),
			})
		}
	}
	for _, d := range a.GetDevices() {
		if m.first(m.nodes, "the device at", d.GetContainerPath(), d.GetHostPath()) {
			m.into.DeviceNodes = append(m.into.DeviceNodes, topic.DeviceNode{
				ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions(),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.GetAnnotations())) {
		if m.into.Annotations == nil {
			m.into.Annotations = map[string]string{}
		}
		if value := a.GetAnnotations()[name]; m.first(m.into.Annotations, "the annotation", name, value) {
			m.into.Annotations[name] = value
		}
	}
	for _, d := range a.GetCdiDevices() {
		if name := d.GetName(); !m.cdi[name] {
			m.cdi[name] = true
			m.into.CDI = append(m.into.CDI, name)
		}
	}
}

// first reports whether nobody has said yet what the thing is, and remembers it.
func (m *merger) first(said map[string]string, kind, name, value string) bool {
	earlier, known := said[name]
	if !known {
		said[name] = value
		return true
	}
	if earlier != value {
		m.conflicts = append(m.conflicts, fmt.Sprintf("%s %q", kind, line(name)))
	}
	return false
}
