package criconfig

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

func TestNonRoot(t *testing.T) {
	nonRoot := func(_ *corev1.Pod, c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ref(true)}
	}
	where := ` (pod: "web_ns(u)", container: app)`
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.Container)
		user   ImageUser
		want   string
	}{
		{"image of a user", nonRoot, ImageUser{UID: ref(int64(7))}, ""},
		{"image of root", nonRoot, ImageUser{UID: ref(int64(0))}, "container has runAsNonRoot and image will run as root" + where},
		{"image without a user", nonRoot, ImageUser{}, "container has runAsNonRoot and image will run as root" + where},
		{"image of a name", nonRoot, ImageUser{Username: "www"}, "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root" + where},
		{"image of a number too large", nonRoot, ImageUser{UID: ref(int64(1) << 40)}, "has an invalid user id"},
		{"user of the pod", func(p *corev1.Pod, c *corev1.Container) {
			nonRoot(p, c)
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ref(int64(9))}
		}, ImageUser{}, ""},
		{"root of the pod", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ref(int64(0)), RunAsNonRoot: ref(true)}
		}, ImageUser{}, "container's runAsUser breaks non-root policy" + where},
		{"allowed by the container", func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ref(true)}
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ref(false)}
		}, ImageUser{}, ""},
	} {
		pod, container := onePod(c.change)
		in := inputFor(pod, container)
		in.ImageUser = c.user
		_, err := Container(testNode(), in)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestImageUser(t *testing.T) {
	pod, container := onePod(nil)
	in := inputFor(pod, container)
	for _, c := range []struct {
		user ImageUser
		uid  *runtimeapi.Int64Value
		name string
	}{
		{ImageUser{}, &runtimeapi.Int64Value{}, ""},
		{ImageUser{UID: ref(int64(5))}, &runtimeapi.Int64Value{Value: 5}, ""},
		{ImageUser{Username: "www"}, nil, "www"},
	} {
		in.ImageUser = c.user
		config, err := Container(testNode(), in)
		if err != nil {
			t.Fatal(err)
		}
		sc := config.Linux.SecurityContext
		if (sc.RunAsUser == nil) != (c.uid == nil) || sc.GetRunAsUser().GetValue() != c.uid.GetValue() || sc.RunAsUsername != c.name {
			t.Errorf("%+v: got %v, %q", c.user, sc.RunAsUser, sc.RunAsUsername)
		}
	}
}

func TestSpecErrors(t *testing.T) {
	mount := func(m corev1.VolumeMount) func(*corev1.Pod, *corev1.Container) {
		return func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "img", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "r"}}}}
			m.MountPath = "/m"
			c.VolumeMounts = []corev1.VolumeMount{m}
		}
	}
	security := func(sc corev1.SecurityContext) func(*corev1.Pod, *corev1.Container) {
		return func(_ *corev1.Pod, c *corev1.Container) { c.SecurityContext = &sc }
	}
	for want, change := range map[string]func(*corev1.Pod, *corev1.Container){
		`cannot find volume "none" to mount into container "app"`:          mount(corev1.VolumeMount{Name: "none"}),
		"error SubPath `/abs` must not be an absolute path":                mount(corev1.VolumeMount{Name: "v", SubPath: "/abs"}),
		"unable to provision SubPath `a/../b`: must not contain '..'":      mount(corev1.VolumeMount{Name: "v", SubPath: "a/../b"}),
		"missing value for NONE":                                           mount(corev1.VolumeMount{Name: "v", SubPathExpr: "$(NONE)"}),
		`failed to prepare subPath for volumeMount "v" of container "app"`: mount(corev1.VolumeMount{Name: "v", SubPath: "a"}),
		`invalid MountPropagation mode: "X"`:                               mount(corev1.VolumeMount{Name: "v", MountPropagation: ref(corev1.MountPropagationMode("X"))}),
		"but it is not read-only":                                          mount(corev1.VolumeMount{Name: "v", RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled)}),
		"but it is not supported by the runtime":                           mount(corev1.VolumeMount{Name: "v", ReadOnly: true, RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled)}),
		`not compatible with propagation "Bidirectional"`:                  mount(corev1.VolumeMount{Name: "v", ReadOnly: true, MountPropagation: ref(corev1.MountPropagationBidirectional), RecursiveReadOnly: ref(corev1.RecursiveReadOnlyEnabled)}),
		`the image of volume "img" isn't there`:                            mount(corev1.VolumeMount{Name: "img"}),
		"localhostProfile must be set":                                     security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"}}),
		"must be a path below":                                             security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ref("../x")}}),
		`unknown seccomp profile type: "X"`:                                security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "X"}}),
		"missing localhost apparmor profile name":                          security(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost"}}),
		`unknown apparmor profile type: "X"`:                               security(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "X"}}),
		"unsupported supplementalGroupsPolicy: X": func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: ref(corev1.SupplementalGroupsPolicy("X"))}
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

func TestAppArmorAnnotation(t *testing.T) {
	for annotation, want := range map[string]string{
		"runtime/default": "RuntimeDefault", "unconfined": "Unconfined", "localhost/p": "Localhost", "": "RuntimeDefault", "bogus": "RuntimeDefault",
	} {
		pod, container := onePod(func(p *corev1.Pod, _ *corev1.Container) {
			if annotation != "" {
				p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": annotation}
			}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
		})
		config, err := Container(testNode(), inputFor(pod, container))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Linux.SecurityContext.Apparmor.ProfileType.String(); got != want {
			t.Errorf("%q: got %s, want %s", annotation, got, want)
		}
	}
}

func TestSeccompDefault(t *testing.T) {
	pod, container := onePod(nil)
	for on, want := range map[bool]string{true: "RuntimeDefault", false: "Unconfined"} {
		node := testNode()
		node.SeccompDefault = on
		config, err := Container(node, inputFor(pod, container))
		if err != nil || config.Linux.SecurityContext.Seccomp.ProfileType.String() != want {
			t.Errorf("seccompDefault %v: got %v, %v", on, config, err)
		}
	}
}

func TestTargetOfEphemeralContainer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod, *corev1.Container)
		want   runtimeapi.NamespaceMode
	}{
		"own PIDs":    {nil, runtimeapi.NamespaceMode_TARGET},
		"shared PIDs": {func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = ref(true) }, runtimeapi.NamespaceMode_POD},
		"host PIDs":   {func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostPID = true }, runtimeapi.NamespaceMode_NODE},
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
		"no device": {topic.Volume{HostPath: "/pods/u/dir"}, `cannot find volume "disk" to pass into container "` + container.Name + `"`},
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
	if _, err := Container(testNode(), inputFor(pod, container)); err == nil || !strings.Contains(err.Error(), "must be an absolute path") {
		t.Errorf("a relative device path: %v", err)
	}
}

func TestDevicesAndNodeSettings(t *testing.T) {
	pod, container := onePod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/e", ReadOnly: true, RecursiveReadOnly: ref(corev1.RecursiveReadOnlyIfPossible)}}
	})
	node := testNode()
	node.SELinux, node.MaskedPaths = true, []string{"/sys/x"}
	in := inputFor(pod, container)
	in.RecursiveReadOnly = true
	in.Devices = []*runtimeapi.Device{{HostPath: "/dev/a"}}
	in.CDIDevices = []*runtimeapi.CDIDevice{{Name: "v/c=d"}}
	in.Annotations = map[string]string{"x": "y", "io.kubernetes.container.hash": "forged"}
	in.SupplementalGroups = []int64{77}
	config, err := Container(node, in)
	if err != nil {
		t.Fatal(err)
	}
	m := config.Mounts[0]
	if !m.SelinuxRelabel || !m.RecursiveReadOnly || len(config.Devices) != 1 || len(config.CDIDevices) != 1 {
		t.Errorf("got %v", config)
	}
	sc := config.Linux.SecurityContext
	if sc.MaskedPaths[len(sc.MaskedPaths)-1] != "/sys/x" || len(sc.SupplementalGroups) != 1 || sc.SupplementalGroups[0] != 77 {
		t.Errorf("got %v", sc)
	}
	if a := config.Annotations; a["x"] != "y" || a["io.kubernetes.container.hash"] == "forged" {
		t.Errorf("got %v", a)
	}
	if len(maskedPaths) != 12 {
		t.Error("the list of masked paths grew")
	}
}

func TestOOMScore(t *testing.T) {
	for _, c := range []struct {
		name     string
		memory   string
		change   func(*corev1.Pod)
		capacity uint64
		want     int64
	}{
		{"a quarter", "2Gi", nil, 8 << 30, 750},
		{"next to nothing", "1", nil, 8 << 30, 999},
		{"all", "8Gi", nil, 8 << 30, 3},
		{"more than all", "80Gi", nil, 8 << 30, 3},
		{"unknown machine", "1Gi", nil, 0, 999},
		{"node critical", "1Gi", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }, 8 << 30, -997},
		{"best effort", "1Gi", func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, 8 << 30, 1000},
	} {
		pod, container := onePod(func(p *corev1.Pod, ct *corev1.Container) {
			ct.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse(c.memory)}
			if c.change != nil {
				c.change(p)
			}
		})
		node := testNode()
		node.MemoryCapacity = c.capacity
		if got := Resources(node, pod, container, false).OomScoreAdj; got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCPU(t *testing.T) {
	for _, c := range []struct {
		request, limit         string
		exclusive, quotaOff    bool
		period                 time.Duration
		shares, quota, period_ int64
	}{
		{"", "", false, false, 0, 2, 0, 100000},
		{"500m", "", false, false, 0, 512, 0, 100000},
		{"", "2", false, false, 0, 2048, 200000, 100000},
		{"1m", "1m", false, false, 0, 2, 1000, 100000},
		{"1000", "1000", false, false, 0, 262144, 100000000, 100000},
		{"1", "1", false, false, 5 * time.Millisecond, 1024, 5000, 5000},
		{"1", "1", true, false, 0, 1024, -1, 100000},
		{"1", "1", true, true, 0, 1024, 0, 0},
	} {
		pod, container := onePod(func(_ *corev1.Pod, ct *corev1.Container) {
			ct.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
			if c.request != "" {
				ct.Resources.Requests["cpu"] = resource.MustParse(c.request)
			}
			if c.limit != "" {
				ct.Resources.Limits["cpu"] = resource.MustParse(c.limit)
			}
		})
		node := testNode()
		node.CPUCFSQuota, node.CPUCFSQuotaPeriod = !c.quotaOff, c.period
		r := Resources(node, pod, container, c.exclusive)
		if r.CpuShares != c.shares || r.CpuQuota != c.quota || r.CpuPeriod != c.period_ {
			t.Errorf("%+v: got %v", c, r)
		}
	}
}

func TestSwap(t *testing.T) {
	burstable := func(_ *corev1.Pod, c *corev1.Container) {
		c.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("2Gi")}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.Container)
		node   func(*Node)
		want   string
		v1     int64
	}{
		{"in proportion", burstable, func(*Node) {}, "1073741824", 0},
		{"switched off", burstable, func(n *Node) { n.SwapBehavior = "NoSwap" }, "0", 0},
		{"no controller", burstable, func(n *Node) { n.SwapController = false }, "", 0},
		{"best effort", nil, func(*Node) {}, "0", 0},
		{"static", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}, func(*Node) {}, "0", 0},
		{"critical", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			p.Spec.Priority = ref(int32(2000001000))
		}, func(*Node) {}, "0", 0},
		{"version 1", func(p *corev1.Pod, ct *corev1.Container) {
			burstable(p, ct)
			ct.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("3Gi")}
		}, func(n *Node) { n.CgroupV2 = false }, "", 3 << 30},
	} {
		pod, container := onePod(c.change)
		node := testNode()
		node.CgroupV2, node.SwapController, node.SwapBehavior, node.SwapCapacity = true, true, "LimitedSwap", 4<<30
		c.node(node)
		r := Resources(node, pod, container, false)
		if r.Unified["memory.swap.max"] != c.want || r.MemorySwapLimitInBytes != c.v1 {
			t.Errorf("%s: got %v", c.name, r)
		}
	}
}

func TestOOMKillsTheGroup(t *testing.T) {
	pod, container := onePod(nil)
	node := testNode()
	node.CgroupV2, node.SingleProcessOOMKill = true, false
	if got := Resources(node, pod, container, false).Unified["memory.oom.group"]; got != "1" {
		t.Errorf("got %q", got)
	}
}

func TestPageSizes(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-16Gi": "16GB",
		"hugepages-x": "", "hugepages-0": "", "memory": "", "hugepages-100": "100B",
	} {
		got, ok := pageSize(name)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
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
