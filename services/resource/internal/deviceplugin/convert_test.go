package deviceplugin

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/devices"
)

func answer(t *testing.T, resource string, a *pluginapi.ContainerAllocateResponse) devices.Answer {
	t.Helper()
	data, err := proto.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return devices.Answer{Resource: resource, Response: data}
}

// Of several answers the first counts.
func TestMerge(t *testing.T) {
	got := topic.ContainerAllocation{CPUs: "2-3", Env: []topic.EnvVar{{Name: "OWN", Value: "1"}}, CDI: []string{"own=0"}}
	conflicts, err := Merge(&got, []devices.Answer{
		answer(t, gpu, &pluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"B": "gpu", "A": "gpu", "OWN": "2"},
			Mounts:      []*pluginapi.Mount{{ContainerPath: "/lib", HostPath: "/gpu", ReadOnly: true}},
			Devices:     []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x0", Permissions: "rw"}},
			Annotations: map[string]string{"a": "gpu"},
			CdiDevices:  []*pluginapi.CDIDevice{{Name: "gpu=0"}, {Name: "own=0"}, {Name: "gpu=0"}},
		}),
		{Resource: "vendor.example/bad", Response: []byte{0xff}},
		answer(t, nic, &pluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"B": "gpu", "A": "nic", "C": "nic"},
			Mounts:      []*pluginapi.Mount{{ContainerPath: "/lib", HostPath: "/nic"}, {ContainerPath: "/n", HostPath: "/nic"}},
			Devices:     []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x1"}},
			Annotations: map[string]string{"a": "nic", "b": "nic"},
			CdiDevices:  []*pluginapi.CDIDevice{{Name: "nic=0"}},
		}),
	})
	if err == nil || !strings.Contains(err.Error(), "vendor.example/bad") {
		t.Errorf("the answer that can't be read: %v", err)
	}
	want := topic.ContainerAllocation{
		CPUs: "2-3",
		Env: []topic.EnvVar{
			{Name: "OWN", Value: "1"}, {Name: "A", Value: "gpu"}, {Name: "B", Value: "gpu"}, {Name: "C", Value: "nic"},
		},
		Mounts: []topic.AllocatedMount{
			{ContainerPath: "/lib", HostPath: "/gpu", ReadOnly: true}, {ContainerPath: "/n", HostPath: "/nic"},
		},
		DeviceNodes: []topic.DeviceNode{{ContainerPath: "/dev/x", HostPath: "/dev/x0", Permissions: "rw"}},
		Annotations: map[string]string{"a": "gpu", "b": "nic"},
		CDI:         []string{"own=0", "gpu=0", "nic=0"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	wantConflicts := []string{
		`the environment variable "OWN"`, `the environment variable "A"`, `the mount at "/lib"`, `the device at "/dev/x"`,
		`the annotation "a"`,
	}
	if !slices.Equal(conflicts, wantConflicts) {
		t.Errorf("conflicts are %q", conflicts)
	}
}

func TestJudge(t *testing.T) {
	device := func(id, health string, nodes ...int64) *pluginapi.Device {
		d := &pluginapi.Device{ID: id, Health: health, Topology: &pluginapi.TopologyInfo{}}
		for _, node := range nodes {
			d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: node})
		}
		return d
	}
	for name, c := range map[string]struct {
		message []*pluginapi.Device
		want    []devices.Device
		strange string
	}{
		"none": {nil, []devices.Device{}, ""},
		"order": {
			[]*pluginapi.Device{device("b", "Healthy"), device("a", "Unhealthy")},
			[]devices.Device{{ID: "a"}, {ID: "b", Healthy: true}},
			"",
		},
		"twice": {[]*pluginapi.Device{device("a", "Healthy"), device("a", "")}, []devices.Device{{ID: "a"}}, ""},
		"nodes": {
			[]*pluginapi.Device{device("a", "Healthy", 3, 1, 3)},
			[]devices.Device{{ID: "a", Healthy: true, Nodes: []int{1, 3}}},
			"",
		},
		"strange nodes": {
			[]*pluginapi.Device{device("a", "fine", -1, 1<<40, 0)},
			[]devices.Device{{ID: "a", Nodes: []int{0}}},
			"which can't be",
		},
		"no ID": {
			[]*pluginapi.Device{device("", "Healthy"), device("a", "")}, []devices.Device{{ID: "a"}}, "has 0 characters",
		},
		"long ID": {
			[]*pluginapi.Device{device(strings.Repeat("x", maxID+1), "")}, []devices.Device{}, "has 1025 characters",
		},
	} {
		got, strange := judge(c.message)
		if !reflect.DeepEqual(got, c.want) || (strange == "") != (c.strange == "") || !strings.Contains(strange, c.strange) {
			t.Errorf("%s: %v, %q; want %v, %q", name, got, strange, c.want, c.strange)
		}
	}
}
