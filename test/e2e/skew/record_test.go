package skew

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/release"
)

// record names the release whose messages and state files are recorded, once, when it is made:
//
//	GOWORK=off go -C test test ./e2e/skew -run TestRecord -record v0.1.0
var record = flag.String("record", "", "the release to record, such as v0.1.0")

// unsaid are the topics of which nothing is said by itself on the bed: what only people ask, and what only plugins and
// shutdowns bring.
var unsaid = []bus.Topic{
	topic.GCPlan, topic.PodRetry, topic.ManifestCheck, topic.ShutdownRequested,
	topic.PluginRegistered, topic.CSIDriver, topic.VolumeUsage, topic.ResourcePreStart,
}

// recordedPods have something to say on every topic.
const recordedPods = `
apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {app: whole}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 1234}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: absent, secret: {secretName: absent, optional: true}}
  initContainers:
  - {name: first, image: "busybox:1.36", command: ["true"]}
  - {name: side, image: "busybox:1.36", restartPolicy: Always, command: [sleep, "1000"]}
  containers:
  - name: app
    image: busybox:1.36
    command: [sleep, "1000"]
    env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {memory: 32Mi}}
    volumeMounts: [{name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch, subPath: x}]
    startupProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: fails}
spec: {containers: [{name: app, image: "busybox:1.36", command: ["false"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ends}
spec: {restartPolicy: Never, containers: [{name: app, image: "busybox:1.36", command: ["true"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: refused}
spec: {nodeSelector: {no: such}, nodeName: testbed, containers: [{name: app, image: "busybox:1.36"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: c, configMap: {name: no-such}}]
  containers: [{name: app, image: "busybox:1.36", command: [sleep, "1000"], volumeMounts: [{name: c, mountPath: /c}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: absent-image}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "127.0.0.1:1/no/such:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "dd if=/dev/zero of=/data/much bs=1M count=5; sleep 3600"]
    volumeMounts: [{name: data, mountPath: /data}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green}
`

const recordedStatic = `
apiVersion: v1
kind: Pod
metadata: {name: static}
spec: {containers: [{name: app, image: "busybox:1.36", command: [sleep, "1000"]}]}
`

// TestRecord runs the release's daemons and writes what they say: the messages of each topic that differ in shape, with
// their headers, and the files in which daemons keep their state.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("it records a new release, when -record names it")
	}
	root := repository(t)
	all, err := release.List(root)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r release.Release) bool { return r.Version == *record })
	if i < 0 {
		t.Fatalf("deploy/releases.txt has no %s", *record)
	}
	into := filepath.Join(root, "bus", "topic", "testdata", *record)
	if _, err := os.Stat(into); err == nil {
		t.Fatalf("%s is there: what a release wrote is never written again", into)
	}
	dir, err := release.Build(t.Context(), root, all[i])
	if err != nil {
		t.Fatal(err)
	}
	b, err := kit.Start(t.Context(), kit.Options{
		Registry: true, Args: []string{"--bin-dir=" + dir},
		Config: "imageMinimumGCAge: 1s\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := &recorder{t: t, b: b, seen: map[string]map[string]bool{}, kept: map[string][]recorded{}}
	r.listen()
	r.live()
	r.calls()
	r.write(into)
	r.files(root)
}

// live has pods live and die, and a daemon stop.
func (r *recorder) live() {
	t, ns := r.t, r.b.Namespace(r.t)
	pulled, err := images.Variant(r.b.Busybox, "docker.io/recorded/app:1", "recorded")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.b.Registry.Push(t.Context(), pulled)
	if err != nil {
		t.Fatal(err)
	}
	ns.Apply(recordedPods + fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: pulled}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: app, image: %q, command: [sleep, "1000"]}]}
`, ref))
	manifest := filepath.Join(r.b.Node.ManifestDir, "static.yaml")
	if err := os.WriteFile(manifest, []byte(strings.TrimSpace(recordedStatic)), 0o644); err != nil {
		t.Fatal(err)
	}
	ns.Running("whole")
	ns.Running("pulled")
	ns.Waiting("fails", "app", "CrashLoopBackOff")
	ns.Phase("ends", "Succeeded")
	ns.Phase("refused", "Failed")
	ns.Waiting("absent-image", "app", "ImagePullBackOff")
	r.waiting = topic.RefOf(ns.Wait("absent-image", "there", func(*corev1.Pod) bool { return true }))
	ns.Phase("greedy", "Failed")
	ns.Delete("pulled", 1)
	ns.Delete("fails", 1)
	time.Sleep(2 * time.Second)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "a topic's every kind of message", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var missing []string
		for _, tp := range topic.All() {
			if len(r.kept[tp.Name()]) == 0 && !slices.Contains(unsaid, tp) {
				missing = append(missing, tp.Name())
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("nothing was said of %v", missing)
		}
		return nil
	})
}

// calls asks what people and daemons ask, and keeps the replies.
func (r *recorder) calls() {
	r.mu.Lock()
	asked := maps.Clone(r.kept)
	r.mu.Unlock()
	r.ask("cli", topic.GCPlan, []byte(`{"images":true}`))
	r.ask("cli", topic.PodRetry, r.encode(topic.Retry{Ref: r.waiting}))
	r.ask("cli", topic.ManifestCheck, r.encode(topic.ManifestRequest{File: "static.yaml", Data: []byte(recordedStatic)}))
	for daemon, call := range map[string]bus.Topic{
		"api": topic.StatsSummary, "podsync": topic.VolumeSubPath, "gc": topic.PodEvict,
	} {
		for _, request := range asked[call.Name()] {
			r.ask(daemon, call, request.Data)
		}
	}
	// A failure.
	r.ask("gc", topic.PodEvict, []byte(`{"uid":"no-such-pod"}`))
}

// files copies the state files to those who read them.
func (r *recorder) files(root string) {
	for from, to := range map[string]string{
		"image_manager/pulled/sha256-*": "services/podsync/internal/image/pullrecords",
		"../run/gc/images.json":         "services/gc/internal/image",
	} {
		found, err := filepath.Glob(filepath.Join(r.b.Node.RootDir, from))
		if err != nil || len(found) == 0 {
			r.t.Errorf("no state file %s below %s: %v", from, r.b.Node.RootDir, err)
		}
		for _, path := range found {
			dir := filepath.Join(root, to, "testdata", *record)
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.MkdirAll(dir, 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o644)
			}
			if err != nil {
				r.t.Error(err)
			}
		}
	}
}

// repository is the root of the checkout.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
