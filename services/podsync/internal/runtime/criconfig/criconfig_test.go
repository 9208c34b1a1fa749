package criconfig

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

func onePod(change func(*corev1.Pod, *corev1.Container)) (*corev1.Pod, *corev1.Container) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx"}}},
	}
	if change != nil {
		change(pod, &pod.Spec.Containers[0])
	}
	return pod, &pod.Spec.Containers[0]
}

func ref[T any](v T) *T { return &v }

func TestSpecErrors(t *testing.T) {
	mount := func(m corev1.VolumeMount) func(*corev1.Pod, *corev1.Container) {
		return func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.Volumes = []corev1.Volume{
				{Name: "v"},
				{Name: "img", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "r"}}},
			}
			m.MountPath = "/m"
			c.VolumeMounts = []corev1.VolumeMount{m}
		}
	}
	security := func(sc corev1.SecurityContext) func(*corev1.Pod, *corev1.Container) {
		return func(_ *corev1.Pod, c *corev1.Container) { c.SecurityContext = &sc }
	}
	for want, change := range map[string]func(*corev1.Pod, *corev1.Container){
		`cannot find volume "none" to mount into container "app"`: mount(corev1.VolumeMount{Name: "none"}),
		"error SubPath `/abs` must not be an absolute path": mount(corev1.VolumeMount{
			Name:    "v",
			SubPath: "/abs",
		}),
		"unable to provision SubPath `a/../b`: must not contain '..'": mount(corev1.VolumeMount{
			Name:    "v",
			SubPath: "a/../b",
		}),
		"missing value for NONE": mount(corev1.VolumeMount{
			Name:        "v",
			SubPathExpr: "$(NONE)",
		}),
		`failed to prepare subPath for volumeMount "v" of container "app"`: mount(corev1.VolumeMount{
			Name:    "v",
			SubPath: "a",
		}),
		`invalid MountPropagation mode: "X"`: mount(corev1.VolumeMount{
			Name:             "v",
			MountPropagation: ref(corev1.MountPropagationMode("X")),
		}),
		"but it is not read-only": mount(corev1.VolumeMount{
			Name:              "v",
			RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled),
		}),
		"but it is not supported by the runtime": mount(corev1.VolumeMount{
			Name:     "v",
			ReadOnly: true, RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled),
		}),
		`not compatible with propagation "Bidirectional"`: mount(corev1.VolumeMount{
			Name:     "v",
			ReadOnly: true, MountPropagation: ref(corev1.MountPropagationBidirectional),
			RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled),
		}),
		`the image of volume "img" isn't there`: mount(corev1.VolumeMount{Name: "img"}),
		"localhostProfile must be set": security(
			corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"}}),
		"must be a path below": security(
			corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ref("../x")}}),
		`unknown seccomp profile type: "X"`: security(
			corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "X"}}),
		"missing localhost apparmor profile name": security(
			corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost"}}),
		`unknown apparmor profile type: "X"`: security(
			corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "X"}}),
		"unsupported supplementalGroupsPolicy: X": func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: ref(corev1.SupplementalGroupsPolicy(
				"X"))}
		},
		`unknown stop signal "SIGNOPE"`: func(_ *corev1.Pod, c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{StopSignal: ref(corev1.Signal("SIGNOPE"))}
		},
	} {
		pod, container := onePod(change)
		in := inputFor(pod, container)
		in.ImageVolumes = nil
		_, err := Container(testNode(), in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	pod, _ := onePod(func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Hostname = "_" })
	if _, err := Sandbox(testNode(), SandboxInput{Pod: pod}); err == nil {
		t.Error("a sandbox with an invalid host name")
	}
}

func TestTargetOfEphemeralContainer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod, *corev1.Container)
		want   runtimeapi.NamespaceMode
	}{
		"own PIDs": {nil, runtimeapi.NamespaceMode_TARGET},
		"shared PIDs": {
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = ref(true) },
			runtimeapi.NamespaceMode_POD,
		},
		"host PIDs": {func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostPID = true }, runtimeapi.NamespaceMode_NODE},
	} {
		pod, container := onePod(c.change)
		in := inputFor(pod, container)
		in.TargetID = "c-1"
		config, err := Container(testNode(), in)
		if err != nil {
			t.Fatal(err)
		}
		options := config.Linux.SecurityContext.NamespaceOptions
		if options.Pid != c.want || (options.TargetId != "") != (c.want == runtimeapi.NamespaceMode_TARGET) {
			t.Errorf("%s: got %v", name, options)
		}
	}
}

func TestVolumeDevices(t *testing.T) {
	pod, container := onePod(func(_ *corev1.Pod, c *corev1.Container) {
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}}
	})
	for name, c := range map[string]struct {
		volume topic.Volume
		want   string
	}{
		"writable":  {topic.Volume{Device: "/pods/u/disk"}, "/pods/u/disk /dev/xvda mrw"},
		"read-only": {topic.Volume{Device: "/pods/u/disk", ReadOnly: true}, "/pods/u/disk /dev/xvda r"},
		"no device": {topic.Volume{HostPath: "/pods/u/dir"}, `cannot find volume "disk" to pass into container "` +
			container.Name + `"`},
	} {
		in := inputFor(pod, container)
		in.Volumes = map[string]topic.Volume{"disk": c.volume}
		config, err := Container(testNode(), in)
		got := fmt.Sprint(err)
		if err == nil {
			d := config.Devices[0]
			got = d.HostPath + " " + d.ContainerPath + " " + d.Permissions
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	container.VolumeDevices[0].DevicePath = "dev/xvda"
	if _, err := Container(testNode(), inputFor(pod, container)); err == nil ||
		!strings.Contains(err.Error(), "must be an absolute path") {
		t.Errorf("a relative device path: %v", err)
	}
}

func TestDevicesAndNodeSettings(t *testing.T) {
	pod, container := onePod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = []corev1.Volume{{
			Name:         "e",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}}
		c.VolumeMounts = []corev1.VolumeMount{{
			Name: "e", MountPath: "/e", ReadOnly: true,
			RecursiveReadOnly: ref(corev1.RecursiveReadOnlyIfPossible),
		}}
	})
	node := testNode()
	node.SELinux, node.MaskedPaths = true, []string{"/sys/x"}
	in := inputFor(pod, container)
	in.RecursiveReadOnly = true
	in.Alone = topic.ContainerAllocation{
		DeviceNodes: []topic.DeviceNode{{HostPath: "/dev/a"}}, CDI: []string{"v/c=d"}, CPUs: "2-3", MemoryNodes: "1",
		Annotations: map[string]string{"x": "y", "io.kubernetes.container.hash": "forged"},
		Mounts:      []topic.AllocatedMount{{HostPath: "/lib/driver", ContainerPath: "/driver", ReadOnly: true}},
	}
	in.SharedCPUs = "0-1"
	in.SupplementalGroups = []int64{77}
	config, err := Container(node, in)
	if err != nil {
		t.Fatal(err)
	}
	if m := config.Mounts[0]; m.HostPath != "/lib/driver" || !m.Readonly || m.SelinuxRelabel {
		t.Errorf("the plugin's mount: got %v", m)
	}
	if r := config.Linux.Resources; r.CpusetCpus != "2-3" || r.CpusetMems != "1" || r.CpuQuota > 0 {
		t.Errorf("a container with CPUs of its own: got %v", r)
	}
	m := config.Mounts[1]
	if !m.SelinuxRelabel || !m.RecursiveReadOnly || len(config.Devices) != 1 || len(config.CDIDevices) != 1 {
		t.Errorf("got %v", config)
	}
	sc := config.Linux.SecurityContext
	if sc.MaskedPaths[len(sc.MaskedPaths)-1] != "/sys/x" || len(sc.SupplementalGroups) != 1 ||
		sc.SupplementalGroups[0] != 77 {
		t.Errorf("got %v", sc)
	}
	if a := config.Annotations; a["x"] != "y" || a["io.kubernetes.container.hash"] == "forged" {
		t.Errorf("got %v", a)
	}
	if len(maskedPaths) != 12 {
		t.Error("the list of masked paths grew")
	}
}

func TestSubPathsLeaveImagesToTheRuntime(t *testing.T) {
	pod, container := onePod(func(_ *corev1.Pod, c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{
			{Name: "a"}, {Name: "img", SubPath: "x"}, {Name: "a", SubPathExpr: "$(POD)/y", ReadOnly: true},
		}
	})
	in := inputFor(pod, container)
	in.Volumes = map[string]topic.Volume{"a": {HostPath: "/a"}, "img": {Image: "r"}}
	got, err := SubPaths(in)
	if err != nil || len(got) != 1 || got[0] != (topic.SubPath{Index: 2, Volume: "a", SubPath: "web/y", ReadOnly: true}) {
		t.Errorf("got %v, %v", got, err)
	}
}
