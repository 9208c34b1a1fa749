package criconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"kubelot.dev/bus/topic"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write what the code does into testdata/*.json; review the difference")

func testNode() *Node {
	return &Node{
		RootDir: "/var/lib/kubelet", PodLogsDir: "/var/log/pods", ClusterDomain: "cluster.local",
		CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond,
		MemoryCapacity: 8 << 30, SingleProcessOOMKill: true, HugePageSizes: []string{"2MB"},
	}
}

// inputFor prepares what the worker would have prepared: all volumes mounted below /pods/u, all images pulled.
func inputFor(pod *corev1.Pod, c *corev1.Container) ContainerInput {
	in := ContainerInput{
		Pod: pod, Container: c, RestartCount: 2, ImageRef: "sha256:" + c.Name,
		Env:            []*runtimeapi.KeyValue{{Key: "HOME", Value: []byte("/root")}, {Key: "POD", Value: []byte(pod.Name)}},
		Volumes:        map[string]topic.Volume{},
		ImageVolumes:   map[string]*runtimeapi.ImageSpec{},
		SubPaths:       map[int]string{},
		HostsFile:      "/pods/u/etc-hosts",
		TerminationLog: "/pods/u/containers/" + c.Name + "/1234",
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			in.Volumes[v.Name] = topic.Volume{Image: v.Image.Reference, ReadOnly: true}
			in.ImageVolumes[v.Name] = &runtimeapi.ImageSpec{Image: "sha256:" + v.Name, UserSpecifiedImage: v.Image.Reference}
			continue
		}
		in.Volumes[v.Name] = topic.Volume{
			HostPath: "/pods/u/volumes/" + v.Name, ReadOnly: v.Secret != nil,
			SELinuxRelabel: v.EmptyDir != nil,
			HostIDs:        v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory,
		}
	}
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
		in.UserNamespace = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	}
	return in
}

// TestGolden builds the configurations of each testdata/<name>.yaml and compares them with <name>.json.
func TestGolden(t *testing.T) {
	manifests, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, manifest := range manifests {
		t.Run(filepath.Base(manifest), func(t *testing.T) {
			text, err := os.ReadFile(manifest)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict(text, pod); err != nil {
				t.Fatal(err)
			}
			golden(t, manifest[:len(manifest)-len("yaml")]+"json", build(t, pod))
		})
	}
}

// build gives the sandbox's and all containers' configurations.
func build(t *testing.T, pod *corev1.Pod) map[string]any {
	t.Helper()
	before := pod.DeepCopy()
	node := testNode()
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	sandbox, err := Sandbox(node, SandboxInput{
		Pod: pod, Attempt: 1, DNS: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}}, CgroupParent: "/kubepods/podu",
		UserNamespace: inputFor(pod, &containers[0]).UserNamespace,
	})
	if err != nil {
		t.Fatalf("sandbox: %v", err)
	}
	out := map[string]any{"sandbox": sandbox}
	for i := range containers {
		in := inputFor(pod, &containers[i])
		paths, err := SubPaths(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			in.SubPaths[p.Index] = "/pods/u/volume-subpaths/" + p.Volume + "/" + p.SubPath
		}
		config, err := Container(node, in)
		if err != nil {
			t.Fatalf("container %s: %v", containers[i].Name, err)
		}
		out[containers[i].Name] = config
	}
	if a, b := marshal(t, before), marshal(t, pod); !bytes.Equal(a, b) {
		t.Error("the pod was changed")
	}
	return out
}

func golden(t *testing.T, path string, value any) {
	t.Helper()
	got := marshal(t, value)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; if it should, run go test -rewrite and review. Got:\n%s", path, got)
	}
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}
