package vm

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

// forever is a container's command that ends at once when told to.
const forever = `[sh, -c, 'trap "exit 0" TERM; sleep 1000000 & wait']`

// objects are pods of the kinds that differ in what the agent keeps for them: with probes, with volumes of every local
// kind, with an init container and limits. The probes have limits that no slow machine reaches, so that a Ready
// condition changes only by a fault.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: busybox:1.36
    command: [sh, -c, 'mkdir /tmp/w; echo hello >/tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w']
    readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 5, timeoutSeconds: 60, failureThreshold: 20}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 10, timeoutSeconds: 60, failureThreshold: 20}
---
apiVersion: v1
kind: Pod
metadata: {name: mounted}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: keys, mountPath: /keys}
    - {name: scratch, mountPath: /scratch}
    - {name: memory, mountPath: /memory}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys}}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 4Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  terminationGracePeriodSeconds: 5
  initContainers:
  - name: first
    image: busybox:1.36
    command: ["true"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
`

// pods are the names in objects.
var pods = []string{"probed", "mounted", "limited"}

const staticPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: "busybox:1.36", imagePullPolicy: Never, command: $FOREVER}]
`

// workload is a namespace with running pods, and a static pod.
type workload struct {
	*kit.Namespace
	static string // name of the mirror pod, in namespace default
	t      *testing.T
}

// newWorkload starts the pods and waits until they are Ready.
func newWorkload(t *testing.T) *workload {
	t.Helper()
	ns := bed.Namespace(t)
	w := &workload{Namespace: ns, static: ns.Name + "-" + guest.Name, t: t}
	manifest := "/etc/kubernetes/manifests/" + ns.Name + ".yaml"
	text := fmt.Sprintf(strings.ReplaceAll(staticPod, "$FOREVER", forever), ns.Name)
	if err := node.Machine.Write(t.Context(), manifest, 0o600, []byte(text)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test is done.
		if _, err := node.Machine.Run(detached(t), "rm -f "+manifest); err != nil {
			t.Error(err)
		}
	})
	w.Apply(strings.ReplaceAll(objects, "$FOREVER", forever))
	w.ready()
	return w
}

// in is the workload for a subtest, which its failures end.
func (w *workload) in(t *testing.T) *workload {
	return &workload{Namespace: w.In(t), static: w.static, t: t}
}

// ready waits until all pods are Ready.
func (w *workload) ready() {
	w.t.Helper()
	for _, name := range pods {
		w.Running(name)
	}
	kit.Follow(w.t, "static pod "+w.static+" to be Ready", watchPods("default", w.static), kit.Ready)
}

// list are all pods of the workload as they are now.
func (w *workload) list(t *testing.T) []corev1.Pod {
	t.Helper()
	own, err := bed.Client.CoreV1().Pods(w.Name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	static, err := bed.Client.CoreV1().Pods("default").Get(t.Context(), w.static, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append(own.Items, *static)
}
