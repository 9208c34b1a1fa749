package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// strayUID is of a pod that nobody knows.
const strayUID = "0f0f0f0f-1234-4321-abcd-0f0f0f0f0f0f"

// TestChangesWhileDown stops the crew, changes the pods behind its back, and starts it while the API server is away:
// what only the API server can tell has to wait for it, a static pod has not.
func TestChangesWhileDown(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec: " +
		"{terminationGracePeriodSeconds: 1, initContainers: [{name: one, image: \"busybox:1.36\", command: [\"true\"]}], " +
		"containers: [{name: app, image: \"busybox:1.36\", command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1000 " +
		"& wait; done\"]}]}\n"
	ns := bed.Namespace(t)
	describe := func(name string) string { return fmt.Sprintf(manifest, name, ns.Name) }
	ns.Apply(describe("stays") + "---\n" + describe("hurt") + "---\n" + describe("ended") + "---\n" + describe("orphan"))
	static := func(name string) string { return filepath.Join(bed.Node.ManifestDir, ns.Name+"-"+name+".yaml") }
	write(t, static("old"), describe("old"))
	write(t, static("same"), describe("same"))
	stays, hurt, ended, orphan := ns.Running("stays"), ns.Running("hurt"), ns.Running("ended"), ns.Running("orphan")
	old, same := ns.Running("old-"+kit.NodeName), ns.Running("same-"+kit.NodeName)

	bed.Node.Stop()
	bed.KillSandboxes(t, hurt)
	bed.KillContainer(t, ended, "app")
	ns.Delete("orphan", 0)
	if err := os.Remove(static("old")); err != nil {
		t.Fatal(err)
	}
	write(t, static("new"), describe("new"))
	strays := stray(t)
	bed.ControlPlane.StopAPIServer()
	defer startAPIServerAgain(t)()
	launched := make(chan error, 1)
	go func() { launched <- bed.Node.Launch(t.Context()) }()

	kit.Eventually(t, "the new static pod", func() error {
		return attempts(t, "io.kubernetes.pod.name", "new-"+kit.NodeName, "0")
	})
	for _, p := range []*corev1.Pod{stays, orphan, same} {
		if err := attempts(t, "io.kubernetes.pod.uid", kit.NodeUID(p), "0"); err != nil {
			t.Errorf("before the API server was heard, pod %s: %v", p.Name, err)
		}
	}
	startAPIServer(t)
	if err := <-launched; err != nil {
		t.Fatal(err)
	}

	again := ns.Wait("hurt", "its new sandbox", restartedOnce)
	if s := kit.Status(again, "one"); s.RestartCount != 1 || s.State.Terminated == nil ||
		s.State.Terminated.ExitCode != 0 {
		t.Errorf("the init container in a new sandbox: %+v; want a second run", s)
	}
	if again.Status.PodIP == hurt.Status.PodIP || len(again.Status.PodIPs) != 1 ||
		again.Status.PodIPs[0].IP != again.Status.PodIP {
		t.Errorf("addresses %v, %s; want one new one instead of %s", again.Status.PodIPs,
			again.Status.PodIP, hurt.Status.PodIP)
	}
	again = ns.Wait("ended", "its second run", restartedOnce)
	if s := kit.Status(again, "app").LastTerminationState.Terminated; s == nil || s.ExitCode != 137 ||
		kit.Status(again, "one").RestartCount != 0 {
		t.Errorf("the killed container: %+v; want exit code 137, and no second run of the init container", again.Status)
	}
	ns.Gone(old)
	ns.Running("new-" + kit.NodeName)
	for _, p := range []*corev1.Pod{stays, same} {
		if is := ns.Running(p.Name); kit.Status(is, "app").ContainerID != kit.Status(p, "app").ContainerID {
			t.Errorf("pod %s runs in another container", p.Name)
		}
	}
	kit.Eventually(t, "what nobody wants to go", func() error {
		for _, path := range strays {
			if _, err := os.Stat(path); err == nil {
				return fmt.Errorf("%s is there", path)
			}
		}
		return bed.Leftovers(t.Context(), orphan)
	})
	for _, name := range []string{"same", "new"} {
		mirror := ns.Running(name + "-" + kit.NodeName)
		if err := os.Remove(static(name)); err != nil {
			t.Fatal(err)
		}
		ns.Gone(mirror)
	}
}

func restartedOnce(p *corev1.Pod) bool {
	s := kit.Status(p, "app")
	return kit.Ready(p) && s.RestartCount == 1
}

// write writes a file that goes with the test at the latest.
func write(t *testing.T, path, content string) {
	t.Helper()
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stray makes the directory and the cgroups of a pod that nobody knows, and returns their paths.
func stray(t *testing.T) []string {
	t.Helper()
	paths := []string{filepath.Join(bed.Node.RootDir, "pods", strayUID)}
	parents, err := filepath.Glob("/sys/fs/cgroup/*" + bed.Bed.CgroupRoot + "/kubepods/besteffort")
	if err != nil {
		t.Fatal(err)
	}
	parents = append(parents, "/sys/fs/cgroup"+bed.Bed.CgroupRoot+"/kubepods/besteffort")
	for _, parent := range parents {
		if _, err := os.Stat(parent); err == nil {
			paths = append(paths, filepath.Join(parent, "pod"+strayUID))
		}
	}
	if len(paths) == 1 {
		t.Fatal("there is no cgroup for the pods of the class BestEffort")
	}
	for _, path := range paths {
		if err := os.Mkdir(path, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(paths[0], "containers", "app"), 0o750); err != nil {
		t.Fatal(err)
	}
	return paths
}
