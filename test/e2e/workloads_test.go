package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

const template = `
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]}]
`

// Twenty pods of a Deployment: a rolling update, then a deletion that leaves nothing behind. It isn't parallel, so that
// the node can be searched for anything at all.
func TestDeployment(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 20
  progressDeadlineSeconds: 600
  strategy: {rollingUpdate: {maxSurge: 5, maxUnavailable: 5}}
  selector: {matchLabels: {app: web}}
  template:`+template, "web"))
	rollout(t, ns)
	old := pods(t, ns)
	if len(old) != 20 {
		t.Errorf("%d pods; want 20", len(old))
	}
	ns.Kubectl("set", "env", "deployment/web", "CHANGED=yes")
	rollout(t, ns)
	for _, p := range pods(t, ns) {
		if s := kit.Status(&p, "app"); s == nil || s.RestartCount != 0 {
			t.Errorf("pod %s after the update: %+v", p.Name, p.Status)
		}
	}
	ns.Kubectl("delete", "deployment", "web", "--cascade=foreground", "--wait=false")
	for left := len(pods(t, ns)); left > 0; {
		kit.Eventually(t, fmt.Sprintf("another one of %d pods to go", left), func() error {
			now := len(pods(t, ns))
			if now >= left {
				return fmt.Errorf("there are %d", now)
			}
			left = now
			return nil
		})
	}
	kit.Eventually(t, "the node to be clean", func() error { return bed.Clean(t.Context()) })
}

// rollout waits until the Deployment is rolled out. That ends by the Deployment's own deadline for progress, as so
// many pods at once take a busy machine some minutes.
func rollout(t *testing.T, ns *kit.Namespace) {
	t.Helper()
	if out, err := kit.Output(ns.KubectlCommand(t.Context(), "rollout", "status", "deployment/web")); err != nil {
		t.Fatalf("kubectl rollout status: %v\n%s", err, out)
	}
}

func pods(t *testing.T, ns *kit.Namespace) []corev1.Pod {
	t.Helper()
	var list *corev1.PodList
	kit.Eventually(t, "the list of pods", func() (err error) {
		list, err = bed.Client.CoreV1().Pods(ns.Name).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return list.Items
}

// A Job with parallelism and a failing pod, and a CronJob.
func TestJobs(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 6
  parallelism: 3
  template:
    spec: {restartPolicy: Never, containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "sleep 0.2"]}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  backoffLimit: 1
  template:
    spec: {restartPolicy: Never, containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "exit 3"]}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: OnFailure, containers: [{name: app, image: "busybox:1.36", command: [echo, tick]}]}
`)
	job := func(name string, done func(*batchv1.Job) bool) {
		t.Helper()
		kit.Follow(t, "job "+name, func(ctx context.Context) (kit.Watcher, error) {
			return bed.Client.BatchV1().Jobs(ns.Name).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		}, done)
	}
	job("sum", func(j *batchv1.Job) bool { return has(j, batchv1.JobComplete) && j.Status.Succeeded == 6 })
	job("bad", func(j *batchv1.Job) bool { return has(j, batchv1.JobFailed) })
	kit.Follow(t, "a run of the CronJob", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.BatchV1().Jobs(ns.Name).Watch(ctx, metav1.ListOptions{})
	}, func(j *batchv1.Job) bool {
		return metav1.GetControllerOf(j) != nil && metav1.GetControllerOf(j).Name == "tick" && has(j, batchv1.JobComplete)
	})
}

func has(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// A DaemonSet and a StatefulSet.
func TestSets(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:`+template, "agent") + fmt.Sprintf(`
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:`+template, "db"))
	kit.Follow(t, "the DaemonSet", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.AppsV1().DaemonSets(ns.Name).Watch(ctx, metav1.ListOptions{})
	}, func(s *appsv1.DaemonSet) bool { return s.Status.NumberAvailable == 1 })
	kit.Follow(t, "the StatefulSet", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.AppsV1().StatefulSets(ns.Name).Watch(ctx, metav1.ListOptions{})
	}, func(s *appsv1.StatefulSet) bool { return s.Status.AvailableReplicas == 2 })
	first := ns.Running("db-0")
	ns.Delete("db-0", -1)
	second := ns.Wait("db-0", "its successor", func(p *corev1.Pod) bool { return p.UID != first.UID && kit.Ready(p) })
	ns.Equal(second, "app", "hostname", "db-0")
}
