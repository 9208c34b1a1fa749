package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// Logs in all the ways that kubectl asks for them.
func TestLogs(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("talker", `
  initContainers: [{name: init, image: "busybox:1.36", command: [echo, from init]}]
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, 'for i in 1 2 3 4 5; do echo line $i; done; until [ -e /tmp/read ]; do sleep 0.2; done; echo oops >&2; trap "exit 0" TERM; while :; do sleep 1000 & wait; done']}
  - {name: other, image: "busybox:1.36", command: $FOREVER}
`))
	p := ns.Running("talker")
	const all = "line 1\nline 2\nline 3\nline 4\nline 5\n"
	shows(t, ns, all, "logs", "talker", "-c", "app")
	ns.Exec(p, "app", "touch /tmp/read")
	shows(t, ns, all+"oops\n", "logs", "talker", "-c", "app")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", "init"}, "from init\n"},
		{[]string{"-c", "other"}, ""},
		{[]string{"-c", "app", "--limit-bytes=9"}, "line 1\nli"},
		{[]string{"-c", "app", "--tail=0"}, ""},
		{[]string{"-c", "app", "--since-time=2100-01-01T00:00:00Z"}, ""},
		{[]string{"-c", "app", "--tail=2"}, "line 5\noops\n"},
	} {
		shows(t, ns, test.want, append([]string{"logs", "talker"}, test.args...)...)
	}
	line, _, _ := strings.Cut(ns.Kubectl("logs", "talker", "-c", "app", "--timestamps"), "\n")
	if stamp, _, _ := strings.Cut(line, " "); len(stamp) < 20 {
		t.Errorf("no time before %q", line)
	} else if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Error(err)
	}
	if out := ns.Kubectl("logs", "talker", "-c", "app", "--since=1h"); !strings.Contains(out, "line 5") {
		t.Errorf("of the last hour: %q", out)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", "app", "--previous"}, `previous terminated container "app" in pod "talker" not found`},
		{[]string{"-c", "none"}, "container none is not valid for pod talker"},
	} {
		if out, err := try(t, ns, nil, "", append([]string{"logs", "talker"}, test.args...)...); err == nil ||
			!strings.Contains(out, test.want) {
			t.Errorf("kubectl logs %v: %v, %q; want %q", test.args, err, out, test.want)
		}
	}
}

// The log of the container before, and what is told of one that doesn't start.
func TestLogsOfOthers(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("crasher", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while [ -e /d/died ]; do sleep 1000 & wait; done; touch /d/died; echo life of $(hostname); exit 3']
    volumeMounts: [{name: d, mountPath: /d}]
  volumes: [{name: d, emptyDir: {}}]
`))
	ns.Apply(pod("waiter", `
  containers: [{name: app, image: "no.such.registry/image:1"}]
`))
	ns.Wait("crasher", "a second container", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount > 0 && s.LastTerminationState.Terminated != nil
	})
	shows(t, ns, "life of crasher\n", "logs", "crasher", "--previous")
	ns.Wait("waiter", "a failed pull", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "ImagePull")
	})
	if out, err := try(t, ns, nil, "", "logs", "waiter"); err == nil ||
		!strings.Contains(out, `container "app" in pod "waiter" is waiting to start:`) {
		t.Errorf("log of a container that waits: %v, %q", err, out)
	}
}

// A log that is followed goes on across rotations, and ends with the container.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("steady", `
  restartPolicy: Never
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, 'i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo the end']}]
`))
	p := ns.Running("steady")
	f := ns.Session(nil, nil, "logs", "-f", "steady")
	f.Shows("line 3\n")
	dir := filepath.Join(bed.Node.PodLogs, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), "app")
	_, id, _ := strings.Cut(kit.Status(p, "app").ContainerID, "://")
	for round := range 3 {
		path := filepath.Join(dir, "0.log")
		if err := os.Rename(path, fmt.Sprintf("%s.2026010%d-000000", path, round)); err != nil {
			t.Fatal(err)
		}
		reopenLog(t, id)
		// A file that is rotated again before kubectl has come to it may be lost.
		ns.Logged(p, "app", "\n")
		first, _, _ := strings.Cut(ns.Log(p, "app", 0), "\n")
		f.Shows(first + "\n")
	}
	ns.Exec(p, "app", "touch /tmp/stop")
	f.Shows("the end\n")
	if err := f.Ends(); err != nil {
		t.Errorf("kubectl logs -f ended with %v", err)
	}
	number := 0
	for line := range strings.Lines(f.String()) {
		if number++; line != fmt.Sprintf("line %d\n", number) && line != "the end\n" {
			t.Fatalf("line %d is %q: rotation lost or doubled something", number, line)
		}
	}
}
