package matrix

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// rig is the node with the pods on it.
type rig struct {
	bed    *kit.Bed
	ns     *kit.Namespace
	times  Times
	isFull bool
	// links has the links by which the daemons are started, idle is a program that stands in for one, and last the
	// directory of the last release's executables; empty where they can't be had.
	links, idle, last string
	lastName          string
	steady            []*corev1.Pod
	// alone is how long it takes pods to come and go where nothing happens.
	alone time.Duration
	// meanwhile is called once, while the action is performed.
	meanwhile func()
	number    int
}

// steadyPods are of three kinds: what one lacks another one has.
var steadyPods = []string{`
apiVersion: v1
kind: Pod
metadata: {name: steady-%[1]d}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: settings, configMap: {name: settings}}, {name: scratch, emptyDir: {medium: Memory}}]
  containers:
  - name: app
    image: busybox:1.36
    command: $WAIT
    volumeMounts: [{name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch, subPath: x}]
    readinessProbe: {exec: {command: [cat, /settings/color]}, timeoutSeconds: 90, periodSeconds: 2, failureThreshold: 1}
    livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 90, periodSeconds: 5, failureThreshold: 1}
`, `
apiVersion: v1
kind: Pod
metadata: {name: steady-%[1]d}
spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{name: side, image: "busybox:1.36", restartPolicy: Always, command: $WAIT}]
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "mkdir /www; touch /www/index.html; exec httpd -f -p 80 -h /www"]
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 60}
    readinessProbe: {httpGet: {port: 80, path: /}, timeoutSeconds: 90, periodSeconds: 2, failureThreshold: 1}
    livenessProbe: {tcpSocket: {port: 80}, timeoutSeconds: 90, periodSeconds: 2, failureThreshold: 1}
`, `
apiVersion: v1
kind: Pod
metadata: {name: steady-%[1]d}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}, {name: me, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]
  containers:
  - {name: app, image: "busybox:1.36", command: $WAIT, volumeMounts: [{name: data, mountPath: /data}, {name: me, mountPath: /me}]}
  - {name: other, image: "busybox:1.36", command: $WAIT, volumeMounts: [{name: data, mountPath: /data}]}
`}

// settings are for the pods.
const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green}
`

// comes is a pod that comes, or goes, during the action. It doesn't wait for the scheduler, which after an outage of
// the API server asks again only after up to a minute.
const comes = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: ` + kit.NodeName + `
  terminationGracePeriodSeconds: 1
  volumes: [{name: settings, configMap: {name: settings}}]
  containers:
  - name: app
    image: busybox:1.36
    command: $WAIT
    volumeMounts: [{name: settings, mountPath: /settings}]
    readinessProbe: {exec: {command: [cat, /settings/color]}, timeoutSeconds: 90, periodSeconds: 1}
---
`

func waiting(manifest string) string {
	return strings.ReplaceAll(manifest, "$WAIT", `[sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']`)
}

// settle has the steady pods run.
func (r *rig) settle(t *testing.T, size int) {
	t.Helper()
	r.ns.Apply(settings + "---" + kit.TalkPod)
	names := []string{"talk", "static-" + kit.NodeName}
	for i := range size {
		r.ns.Apply(waiting(fmt.Sprintf(steadyPods[i%len(steadyPods)], i)))
		names = append(names, fmt.Sprintf("steady-%d", i))
	}
	static := strings.Replace(waiting(fmt.Sprintf(steadyPods[1], 0)), "{name: steady-0}",
		"{name: static, namespace: "+r.ns.Name+"}", 1)
	path := filepath.Join(r.bed.Node.ManifestDir, "static.yaml")
	r.must(t, os.WriteFile(path, []byte(strings.TrimSpace(static)), 0o644))
	for _, name := range names {
		r.steady = append(r.steady, r.ns.Running(name))
	}
	r.alone = r.comings(t)()
	t.Logf("pods come and go in %s where nothing happens", r.alone.Round(time.Millisecond))
}

const (
	coming = 3 // pods
	going  = 2
)

// comings prepares that pods come and go: r.meanwhile starts it, and the function returned waits for it and says how
// long that took.
func (r *rig) comings(t *testing.T) (converge func() time.Duration) {
	t.Helper()
	r.number++
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%d-%d", kind, r.number, i) }
	var leaving []*corev1.Pod
	for i := range going {
		r.ns.Apply(waiting(fmt.Sprintf(comes, name("leaves", i))))
	}
	for i := range going {
		leaving = append(leaving, r.ns.Running(name("leaves", i)))
	}
	r.meanwhile = sync.OnceFunc(func() {
		for i := range coming {
			r.ns.Apply(waiting(fmt.Sprintf(comes, name("comes", i))))
		}
		for _, p := range leaving {
			r.ns.Delete(p.Name, -1)
		}
	})
	return func() time.Duration {
		began := time.Now()
		r.meanwhile()
		var came []*corev1.Pod
		for i := range coming {
			came = append(came, r.ns.Running(name("comes", i)))
		}
		for _, p := range leaving {
			r.ns.Gone(p)
		}
		kit.Eventually(t, "nothing left of what left", func() error { return r.bed.Leftovers(t.Context(), leaving...) })
		took := time.Since(began)
		for _, p := range came {
			r.ns.Delete(p.Name, 0)
		}
		return took
	}
}

// pass lets the time pass in which a part is frozen or away.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d / 4)
	r.meanwhile()
	time.Sleep(d - d/4)
}
