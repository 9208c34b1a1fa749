package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// The status that tools read, field by field.
func TestStatus(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 32Mi}}
`))
	p := ns.Running("web")
	if p.Status.Phase != corev1.PodRunning || p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("phase %s, QoS class %s; want Running, Burstable", p.Status.Phase, p.Status.QOSClass)
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady, corev1.PodReadyToStartContainers,
	} {
		if got := kit.Condition(p, kind); got != corev1.ConditionTrue {
			t.Errorf("condition %s is %q; want True", kind, got)
		}
	}
	if p.Status.PodIP == "" || len(p.Status.PodIPs) != 1 || p.Status.HostIP != bed.Bed.Gateway.String() ||
		len(p.Status.HostIPs) != 1 || p.Status.StartTime == nil || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("incomplete status: %+v", p.Status)
	}
	s := kit.Status(p, "app")
	if s.State.Running == nil || s.State.Running.StartedAt.IsZero() || !s.Ready || s.Started == nil || !*s.Started ||
		s.RestartCount != 0 {
		t.Errorf("container status: %+v", s)
	}
	if s.Image != "docker.io/library/busybox:1.36" || !strings.Contains(s.ImageID, "sha256:") ||
		!strings.HasPrefix(s.ContainerID, bed.RuntimeName(t)+"://") {
		t.Errorf("image %q, imageID %q, containerID %q", s.Image, s.ImageID, s.ContainerID)
	}
	if got := s.AllocatedResources.Memory().String(); got != "16Mi" {
		t.Errorf("allocated memory %s; want 16Mi", got)
	}
	if s.Resources == nil || s.Resources.Limits.Memory().String() != "32Mi" {
		t.Errorf("resources in the status: %+v; want a memory limit of 32Mi", s.Resources)
	}
	if len(s.VolumeMounts) != 1 || s.VolumeMounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" ||
		!s.VolumeMounts[0].ReadOnly {
		t.Errorf("volume mounts in the status: %+v", s.VolumeMounts)
	}
}

// kubectl describe tells the story with the reasons and sentences that people and tools know.
func TestEvents(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
`))
	p := ns.Running("web")
	ns.Event("web", "Scheduled", "Successfully assigned "+ns.Name+"/web to testbed")
	pulled := ns.Event("web", "Pulled",
		`Container image "busybox:1.36" already present on machine and can be accessed by the pod`)
	if pulled.InvolvedObject.FieldPath != "spec.containers{app}" || pulled.Source.Component != "kubelet" ||
		pulled.Source.Host != kit.NodeName || pulled.ReportingController != "kubelet" {
		t.Errorf("Pulled is about %q, from %+v; want spec.containers{app}, from kubelet on %s",
			pulled.InvolvedObject.FieldPath, pulled.Source, kit.NodeName)
	}
	ns.Event("web", "Created", "")
	ns.Event("web", "Started", "")
	described := ns.Kubectl("describe", "pod", "web")
	for _, want := range []string{
		"Status:", "Running", "QoS Class:", "BestEffort", "Pulled", "Created",
		"Started", "kubelet",
	} {
		if !strings.Contains(described, want) {
			t.Errorf("kubectl describe lacks %q:\n%s", want, described)
		}
	}
	if out := ns.Kubectl("get", "pod", "web"); !strings.Contains(out, "1/1") || !strings.Contains(out, "Running") {
		t.Errorf("kubectl get pod: %s", out)
	}
	ns.Delete("web", -1)
	ns.Event("web", "Killing", "Stopping container app")
	ns.Gone(p)
}

// A pod that ends: phase, exit codes, conditions.
func TestCompletion(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("good", `
  restartPolicy: Never
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "echo done; exit 0"]}
`) + "---\n" + pod("bad", `
  restartPolicy: Never
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "exit 3"]}
`) + "---\n" + pod("again", `
  restartPolicy: OnFailure
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "if [ -e /data/seen ]; then exit 0; fi; touch /data/seen; exit 7"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`))
	p := ns.Phase("good", corev1.PodSucceeded)
	s := kit.Status(p, "app").State.Terminated
	if s == nil || s.ExitCode != 0 || s.Reason != "Completed" || s.StartedAt.IsZero() || s.FinishedAt.IsZero() ||
		s.ContainerID == "" {
		t.Errorf("terminated state: %+v", s)
	}
	ns.Logged(p, "app", "done\n")
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i < 0 || p.Status.Conditions[i].Status != corev1.ConditionFalse || p.Status.Conditions[i].Reason != "PodCompleted" {
		t.Errorf("conditions of a completed pod: %+v; want Ready False, PodCompleted", p.Status.Conditions)
	}
	p = ns.Phase("bad", corev1.PodFailed)
	if s := kit.Status(p, "app").State.Terminated; s == nil || s.ExitCode != 3 || s.Reason != "Error" {
		t.Errorf("terminated state: %+v; want exit code 3, Error", s)
	}
	p = ns.Phase("again", corev1.PodSucceeded)
	status := kit.Status(p, "app")
	if status.RestartCount != 1 || status.LastTerminationState.Terminated == nil ||
		status.LastTerminationState.Terminated.ExitCode != 7 {
		t.Errorf("restart count %d, last state %+v; want 1, exit code 7", status.RestartCount, status.LastTerminationState)
	}
}

// The crash back-off: at once, then after ten seconds, then after twenty.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("crash", `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "exit 1"]}
`))
	// backedOff waits for a back-off after more restarts than that. A late test may miss the first ones.
	backedOff := func(restarts int32) *corev1.Pod {
		p := ns.Wait("crash", fmt.Sprintf("back-off after more than %d restarts", restarts), func(p *corev1.Pod) bool {
			s := kit.Status(p, "app")
			return s != nil && s.RestartCount > restarts && s.State.Waiting != nil &&
				s.State.Waiting.Reason == "CrashLoopBackOff"
		})
		s := kit.Status(p, "app")
		delay := 10 * time.Second << (s.RestartCount - 1)
		if want := fmt.Sprintf("back-off %s restarting failed container=app pod=crash_%s(", delay,
			ns.Name); !strings.HasPrefix(s.State.Waiting.Message, want) {
			t.Errorf("message of the back-off after %d restarts: %s; want %s", s.RestartCount, s.State.Waiting.Message, want)
		}
		return p
	}
	p := backedOff(0)
	ns.Event("crash", "BackOff", "Back-off restarting failed container app in pod crash_"+ns.Name)
	p = backedOff(kit.Restarts(p, "app"))
	if p.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s while in back-off; want Running", p.Status.Phase)
	}
	ns.Delete("crash", -1)
	ns.Gone(p)
}

// activeDeadlineSeconds ends a pod as Failed, DeadlineExceeded.
func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("late", `
  activeDeadlineSeconds: 2
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
`))
	p := ns.Phase("late", corev1.PodFailed)
	if p.Status.Reason != "DeadlineExceeded" || p.Status.Message == "" {
		t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
	}
	ns.Event("late", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
}

// What a container leaves as its last words.
func TestTerminationMessages(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("words", `
  restartPolicy: Never
  containers:
  - {name: file, image: "busybox:1.36", command: [sh, -c, "echo -n farewell > /dev/termination-log"]}
  - {name: custom, image: "busybox:1.36", terminationMessagePath: /tmp/last, command: [sh, -c, "echo -n elsewhere > /tmp/last"]}
  - {name: logs, image: "busybox:1.36", terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo what went wrong; until [ -e /tmp/logged ]; do sleep 0.2; done; exit 2"]}
  - {name: nothing, image: "busybox:1.36", command: [sh, -c, "echo what went wrong; exit 2"]}
  - {name: long, image: "busybox:1.36", command: [sh, -c, "(head -c 10000 /dev/zero | tr '\\0' x; head -c 4096 /dev/zero | tr '\\0' y) > /dev/termination-log"]}
`))
	p := ns.Wait("words", "container logs running", func(p *corev1.Pod) bool {
		s := kit.Status(p, "logs")
		return s != nil && s.State.Running != nil
	})
	ns.Logged(p, "logs", "what went wrong\n")
	ns.Exec(p, "logs", "touch /tmp/logged")
	p = ns.Phase("words", corev1.PodFailed)
	// Of a long file its end counts, and all messages of a pod share 12 KiB.
	const share = 12 * 1024 / 5
	for container, want := range map[string]string{
		"file": "farewell", "custom": "elsewhere", "logs": "what went wrong\n", "nothing": "",
		"long": strings.Repeat("y", share),
	} {
		if s := kit.Status(p, container).State.Terminated; s == nil || s.Message != want {
			t.Errorf("container %s: %+v; want message %.50q", container, s, want)
		}
	}
}

// A changed image replaces the container, in place.
func TestImageChange(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
`))
	before := ns.Running("web")
	ns.Kubectl("set", "image", "pod/web", "app=docker.io/library/busybox:1.36")
	after := ns.Wait("web", "replaced container", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return kit.Ready(p) && s.RestartCount == 1
	})
	if kit.Status(before, "app").ContainerID == kit.Status(after, "app").ContainerID {
		t.Error("the container is the same one")
	}
	if before.Status.PodIP != after.Status.PodIP {
		t.Errorf("the pod's address changed from %s to %s", before.Status.PodIP, after.Status.PodIP)
	}
	ns.Event("web", "Killing", "Container app definition changed, will be restarted")
}
