package gc

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// What belongs to pods, on a bed that isn't short of anything.
func TestPods(t *testing.T) {
	t.Parallel()
	bed := start(t, "containerLogMaxSize: 200Ki\ncontainerLogMaxFiles: 200\ncontainerLogMonitorInterval: 3s\n", nil)
	t.Run("group", func(t *testing.T) {
		t.Run("Rotation", func(t *testing.T) { t.Parallel(); rotation(t, bed) })
		t.Run("DeadContainers", func(t *testing.T) { t.Parallel(); deadContainers(t, bed) })
		t.Run("StorageLimits", func(t *testing.T) { t.Parallel(); storageLimits(t, bed) })
	})
	t.Logf("gc's processor time: %s", cost(t, bed))
}

// cost is how long gc has run and what it has used of a processor in that time.
func cost(t *testing.T, bed *kit.Bed) string {
	t.Helper()
	pid, err := bed.Daemon("gc")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(command(t, "ps", "-o", "etimes=,cputimes=,rss=", "-p", strconv.Itoa(pid))) +
		" (seconds since its start, seconds of processor, KiB resident)"
}

// A log that is written to without a pause is rotated, its older files compressed, and no line is lost. It is written
// to until it has been rotated often enough.
func rotation(t *testing.T, bed *kit.Bed) {
	ns := bed.Namespace(t)
	ns.Apply(pod("chatty", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'i=0; until [ -e /stop ]; do echo "line $i"; i=$((i+1)); [ $((i % 3000)) -eq 0 ] && sleep 1; done; echo "end $i"; sleep 3600']
`))
	p := ns.Running("chatty")
	dir := filepath.Join(bed.Node.PodLogs, ns.Name+"_chatty_"+string(p.UID), "app")
	kit.Eventually(t, "rotated files", func() error {
		entries, err := os.ReadDir(dir)
		compressed, _ := filepath.Glob(filepath.Join(dir, "*.gz"))
		if err == nil && (len(entries) < 4 || len(compressed) < 2) {
			err = fmt.Errorf("the log has %d files, %d compressed", len(entries), len(compressed))
		}
		return err
	})
	ns.Exec(p, "app", "touch /stop")
	allLines(t, dir)
}

// Dead containers go, except the newest of each.
func deadContainers(t *testing.T, bed *kit.Bed) {
	ns := bed.Namespace(t)
	ns.Apply(pod("crash", `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "exit 1"]}
  - {name: other, image: "busybox:1.36", command: $FOREVER}
`))
	ns.Wait("crash", "three runs", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount >= 2 && s.State.Waiting != nil
	})
	kit.Eventually(t, "one dead container", func() error {
		list, err := bed.CRI.Runtime().ListContainers(t.Context(),
			&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
				LabelSelector: map[string]string{"io.kubernetes.pod.namespace": ns.Name},
				State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
			}})
		if err != nil || len(list.Containers) != 1 {
			return fmt.Errorf("there are %d: %w", len(list.GetContainers()), err)
		}
		return nil
	})
	p := ns.Wait("crash", "its last state", func(p *corev1.Pod) bool {
		return kit.Status(p, "app").LastTerminationState.Terminated != nil
	})
	if s := kit.Status(p, "app"); s.RestartCount < 2 || s.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("status after the collection: %+v", s)
	}
	kit.Eventually(t, "the logs of the newest run only", func() error {
		logs, err := filepath.Glob(filepath.Join(bed.Node.PodLogs, ns.Name+"_crash_*", "app", "*.log"))
		if err != nil || len(logs) != 1 {
			return fmt.Errorf("%q, %w", logs, err)
		}
		return nil
	})
	if s := kit.Status(p, "other"); s.RestartCount != 0 || s.State.Running == nil {
		t.Errorf("the container next to it: %+v", s)
	}
}

// Whoever uses more local storage than it may is evicted, by each of the limits.
func storageLimits(t *testing.T, bed *kit.Bed) {
	ns := bed.Namespace(t)
	const write = `[sh, -c, "dd if=/dev/zero of=/data/much bs=1M count=30 2>/dev/null; sleep 3600"]`
	ns.Apply(pod("volume", `
  containers:
  - {name: app, image: "busybox:1.36", command: `+write+`, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {sizeLimit: 10Mi}}]
`) + "---\n" + pod("container", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "dd if=/dev/zero of=/much bs=1M count=30 2>/dev/null; sleep 3600"]
    resources: {limits: {ephemeral-storage: 10Mi}}
  - {name: other, image: "busybox:1.36", command: $FOREVER, resources: {limits: {ephemeral-storage: 100Mi}}}
`) + "---\n" + pod("whole", `
  containers:
  - {name: app, image: "busybox:1.36", command: `+write+`, resources: {limits: {ephemeral-storage: 10Mi}}, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`) + "---\n" + pod("modest", `
  containers:
  - {name: app, image: "busybox:1.36", command: `+write+`, resources: {limits: {ephemeral-storage: 100Mi}}, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {sizeLimit: 100Mi}}]
`))
	evicted(t, ns, "volume", `Usage of EmptyDir volume "data" exceeds the limit "10Mi". `, false)
	evicted(t, ns, "container", `Container app exceeded its local ephemeral storage limit "10Mi". `, false)
	evicted(t, ns, "whole", `Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. `, false)
	unharmed(t, ns, "modest")
}

var line = regexp.MustCompile(`(?m)^\S+ stdout F (line|end) (\d+)$`)

// rotatedLines are the numbers of the lines in all files of the container's log, and how many there are to be; empty if
// it hasn't ended.
func rotatedLines(dir string) (found map[string]int, end string, err error) {
	found = map[string]int{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		data, err := read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, "", err
		}
		for _, m := range line.FindAllStringSubmatch(string(data), -1) {
			if m[1] == "end" {
				end = m[2]
			} else {
				found[m[2]]++
			}
		}
	}
	return found, end, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(f)
	}
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// allLines waits until every line is in the files, once.
func allLines(t *testing.T, dir string) {
	t.Helper()
	kit.Eventually(t, "all lines", func() error {
		found, end, err := rotatedLines(dir)
		switch {
		case err != nil:
			return err
		case strconv.Itoa(len(found)) != end:
			return fmt.Errorf("there are %d of %q lines", len(found), end)
		}
		for n, times := range found {
			if times != 1 {
				return fmt.Errorf("line %s is there %d times", n, times)
			}
		}
		t.Logf("%d lines", len(found))
		return nil
	})
}
