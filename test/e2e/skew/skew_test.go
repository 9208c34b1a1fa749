package skew

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/deploy"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/release"
)

// crew are the daemons in the order in which they are moved: first the bus, which knows the permissions of all.
func crew(t *testing.T) []string {
	t.Helper()
	names, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "bus" })
	slices.Sort(names)
	return append([]string{"bus"}, names...)
}

// lives is a pod that must notice nothing: a failed probe, or one that is lost, would show.
const lives = `
apiVersion: v1
kind: Pod
metadata: {name: lives}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: settings, configMap: {name: settings}}, {name: scratch, emptyDir: {}}]
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']
    volumeMounts: [{name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch, subPath: x}]
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green}
`

// passes is a pod that comes and goes while the crew is of two releases.
const passes = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: settings, configMap: {name: settings}}, {name: scratch, emptyDir: {}}]
  initContainers: [{name: first, image: "busybox:1.36", command: ["true"]}]
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']
    volumeMounts: [{name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch, subPath: x}]
    readinessProbe: {exec: {command: [cat, /settings/color]}, timeoutSeconds: 60, periodSeconds: 1}
`

// versions is a directory as tools/install.sh makes it: one of each version, and the links. fresh are the daemons that
// the last release didn't have.
type versions struct {
	dir, last string
	fresh     []string
}

// install makes it, with the links to the last release. Without that release the test is skipped.
func install(t *testing.T) versions {
	t.Helper()
	root := repository(t)
	last, err := release.Last(root)
	if err != nil {
		t.Fatal(err)
	}
	built, err := release.Build(t.Context(), root, last)
	if errors.Is(err, release.ErrNotHere) {
		fmt.Fprintf(os.Stderr, "SKIPPED: daemons of %s beside those of this checkout: %v\n", last.Version, err)
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := versions{dir: t.TempDir(), last: last.Version}
	now := os.Getenv("KUBELOT_BIN")
	if now == "" {
		now = filepath.Join(root, ".bin")
	}
	if err := os.Mkdir(v.bin(), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{last.Version: built, "now": now} {
		if err := os.Symlink(from, filepath.Join(v.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range crew(t) {
		if _, err := os.Stat(filepath.Join(built, "kubelot-"+name)); err != nil {
			v.fresh = append(v.fresh, name)
			continue
		}
		if err := os.Symlink("../"+last.Version+"/kubelot-"+name, filepath.Join(v.bin(), "kubelot-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v versions) bin() string { return filepath.Join(v.dir, "bin") }

// upgrade runs kubelot upgrade of this checkout and returns what it says.
func (v versions) upgrade(t *testing.T, b *kit.Bed, args ...string) (string, error) {
	t.Helper()
	all := append([]string{"upgrade", "--run-dir=" + b.Node.RunDir(), "--bin-dir=" + v.bin(), "--settle=1s"}, args...)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), b.Program("kubelot"), all...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestPreviousRelease begins with the last release and moves one daemon after the other to this checkout's, and then
// back in the same order, with the bus last, so that each pair of daemons meets in both combinations. Pods come and go
// between the moves, and one lives through all of them. A daemon that doesn't come up goes back.
func TestPreviousRelease(t *testing.T) {
	v := install(t)
	b := kit.StartWithoutNode(t)
	if err := b.StartNode(t.Context(), "kubelot", "--bin-dir="+v.bin()); err != nil {
		t.Fatal(err)
	}
	ns := b.Namespace(t)
	ns.Apply(lives)
	was := ns.Running("lives")
	manifest := filepath.Join(b.Node.ManifestDir, "static.yaml")
	static := strings.NewReplacer("%s", "static",
		"volumes: [{name: settings, configMap: {name: settings}}, ", "volumes: [",
		"{name: settings, mountPath: /settings}, ", "", "cat, /settings/color", `"true"`).Replace(passes)
	static = strings.Replace(static, "metadata: {", "metadata: {namespace: "+ns.Name+", ", 1)
	if err := os.WriteFile(manifest, []byte(strings.TrimSpace(static)), 0o644); err != nil {
		t.Fatal(err)
	}
	wasStatic := ns.Running("static-" + kit.NodeName)
	held := func(after string) {
		t.Helper()
		for _, p := range []*corev1.Pod{was, wasStatic} {
			unchanged(t, after, p, ns.Running(p.Name))
		}
	}
	move := func(to, daemon string) {
		t.Helper()
		if out, err := v.upgrade(t, b, to, daemon); err != nil {
			t.Fatalf("upgrade %s %s: %v\n%s", to, daemon, err, out)
		}
		name := to + "-" + daemon
		if to == v.last {
			name = "back-" + daemon
		}
		ns.Apply(fmt.Sprintf(passes, name))
		p := ns.Running(name)
		if out := ns.Kubectl("exec", name, "--", "cat", "/settings/color"); out != "green" {
			t.Errorf("kubectl exec in %s: %q", name, out)
		}
		ns.Delete(name, -1)
		ns.Gone(p)
		held("kubelot-" + daemon + " was moved to " + to)
	}
	daemons := crew(t)
	for _, daemon := range daemons {
		move("now", daemon)
	}
	broken(t, v, b)
	held("a daemon that doesn't come up")
	// The last release's bus knows nothing of those.
	for _, daemon := range v.fresh {
		move(v.last, daemon)
		if _, err := b.Daemon(daemon); err == nil {
			t.Errorf("kubelot-%s runs, which %s doesn't have", daemon, v.last)
		}
	}
	// And nothing of subjects that came later: a newer volume can't serve volume.usage on it. So the bus goes last, as
	// kubelot upgrade has it.
	for _, daemon := range append(slices.Clone(daemons[1:]), daemons[0]) {
		if !slices.Contains(v.fresh, daemon) {
			move(v.last, daemon)
		}
	}
	// All at once, as an administrator does it.
	out, err := v.upgrade(t, b, "now")
	if err != nil || strings.Count(out, "\n") < len(daemons) || !strings.HasPrefix(out, "kubelot-bus runs ") {
		t.Errorf("upgrade of all: %v\n%s", err, out)
	}
	held("all were moved")
	for _, daemon := range daemons {
		if _, err := b.Daemon(daemon); err != nil {
			t.Error(err)
		}
	}
}

// broken moves a daemon to an executable that ends at once: it goes back, and the rest isn't touched.
func broken(t *testing.T, v versions, b *kit.Bed) {
	t.Helper()
	dir := filepath.Join(v.dir, "broken")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\n[ \"$1\" = --version ] && echo kubelot-x version broken && exit 0\nexit 7\n"
	for _, name := range []string{"pleg", "volume"} {
		if err := os.WriteFile(filepath.Join(dir, "kubelot-"+name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before, err := b.Daemon("volume")
	if err != nil {
		t.Fatal(err)
	}
	// As if somebody had moved the link before: it goes back to what it runs, and not to what the link says.
	link := filepath.Join(v.bin(), "kubelot-pleg")
	if err := errors.Join(os.Remove(link), os.Symlink("../broken/kubelot-pleg", link)); err != nil {
		t.Fatal(err)
	}
	out, err := v.upgrade(t, b, "broken", "pleg", "volume", "--patience=25s")
	if err == nil || !strings.Contains(out, "/kubelot-pleg again; 0 of 2 daemons run broken") {
		t.Errorf("a broken daemon: %v\n%s", err, out)
	}
	if now, err := b.Daemon("volume"); err != nil || now != before {
		t.Errorf("kubelot-volume was process %d and is %d: %v", before, now, err)
	}
	pid, err := b.Daemon("pleg")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || !strings.Contains(path, "kubelot") {
		t.Errorf("kubelot-pleg runs %s, %v", path, err)
	}
	if out, err := exec.CommandContext(t.Context(), b.Program("kubelot"), "doctor",
		"--run-dir="+b.Node.RunDir()).CombinedOutput(); err != nil {
		t.Errorf("after the way back: %v\n%s", err, out)
	}
}

// unchanged checks that the pod runs in the same containers and was Ready all the time.
func unchanged(t *testing.T, after string, was, is *corev1.Pod) {
	t.Helper()
	a, b := kit.Status(was, "app"), kit.Status(is, "app")
	if a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("after %s: %s ran in %s and runs in %s, restarts %d", after, was.Name, a.ContainerID, b.ContainerID,
			b.RestartCount)
	}
	since := func(p *corev1.Pod) string {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		return p.Status.Conditions[i].LastTransitionTime.String()
	}
	if since(was) != since(is) {
		t.Errorf("after %s: %s was Ready since %s and is since %s", after, was.Name, since(was), since(is))
	}
}
