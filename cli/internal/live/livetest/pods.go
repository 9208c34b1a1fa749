package livetest

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	second = time.Second
	milli  = time.Millisecond
)

// crew are the daemons and what they say of the node.
func crew() []bus.Message {
	all := []bus.Message{
		Message(0, "podsync", topic.PodSources, "", topic.Sources{Ready: true, Pods: []string{"u1", "u2", "u3"}}),
		Message(0, "lease", topic.NodeObject, "", node(true)),
		Message(0, "stats", topic.NodeMachine, "", topic.Machine{
			NumCores: 2, MemoryBytes: 4 << 30, KernelVersion: "6.12.9", OSImage: "Debian GNU/Linux 13", CgroupVersion: 2,
		}),
		Message(0, "pleg", topic.NodeRuntime, "", topic.Runtime{
			Name: "containerd", Version: "2.1.4", Reachable: true, EventStream: true,
			RuntimeReady: topic.RuntimeCondition{Status: true}, NetworkReady: topic.RuntimeCondition{Status: true},
		}),
		Message(0, "gc", topic.NodePressure, "", topic.Pressure{}),
		Message(41*second, "gc", topic.GCDecision, "", topic.Decision{
			Action: topic.ActionRemoveImage, Object: "registry.example/unused:1", Reason: "unused for 5m",
			At: At(41 * second).Add(-3 * milli),
		}),
		health("volume", 44*second, 43*second, topic.Healthy, ""),
		health("pleg", 45*second, -second, topic.Degraded, "the runtime's event stream is closed"),
	}
	for i, name := range []string{
		"bus", "podsync", "pleg", "volume", "resource", "probe", "status", "lease", "gc", "stats",
	} {
		all = append(all, health(name, time.Duration(i)*10*milli, -second, topic.Healthy, ""))
	}
	return all
}

// web starts as it should.
func web() []bus.Message {
	ref := Ref("u1", "web")
	pod := Pod("u1", "web", second, func(p *topic.Pod) {
		p.Pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
		p.Pod.Spec.Volumes = []corev1.Volume{{Name: "conf"}}
	})
	volumes := func(phase topic.VolumePhase) topic.PodVolumes {
		return topic.PodVolumes{Ref: ref, Phase: phase, Volumes: map[string]topic.Volume{"conf": {Phase: phase}}}
	}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	return []bus.Message{
		Message(second+10*milli, "podsync", topic.PodUpdate, "u1", pod),
		Message(second+20*milli, "volume", topic.VolumeState, "u1", volumes(topic.VolumePending)),
		Message(second+310*milli, "volume", topic.VolumeState, "u1", volumes(topic.VolumeMounted)),
		Step(second+421*milli, ref, topic.Step{Name: "create sandbox", Duration: 400 * milli}),
		Step(3*second+21*milli, ref, topic.Step{Name: "ensure image", Container: "app", Duration: 2 * second}),
		Message(3*second+101*milli, "pleg", topic.PLEGEvent, "u1", topic.PodObservation{
			Ref: ref, At: At(3*second + 100*milli), Sandboxes: []topic.Sandbox{{ID: "s1", Ready: true}},
			Containers: []topic.Container{running("c1", 0, 3*second+60*milli, 3*second+90*milli)},
		}),
		Step(3*second+101*milli, ref, topic.Step{Name: "start container", Container: "app", Duration: 75 * milli}),
		Message(3*second+120*milli, "status", topic.MergedStatus, "u1",
			Status(ref, corev1.PodRunning, runs, false, second)),
		Message(5*second, "probe", topic.ProbeResult, "u1.app.readiness", topic.Probe{
			ContainerID: "c1", Success: true, Since: At(5*second - 5*milli),
		}),
		Message(5*second+30*milli, "status", topic.MergedStatus, "u1",
			Status(ref, corev1.PodRunning, runs, true, 5*second)),
	}
}

// broken has an image that doesn't exist.
func broken() []bus.Message {
	ref := Ref("u2", "broken")
	waits := Waiting("ImagePullBackOff", "Back-off pulling image: "+notFound)
	return []bus.Message{
		Message(10*second+5*milli, "podsync", topic.PodUpdate, "u2", Pod("u2", "broken", 10*second, nil)),
		Step(10*second+300*milli, ref, topic.Step{Name: "create sandbox", Duration: 280 * milli}),
		Step(11*second, ref, topic.Step{Name: "ensure image", Container: "app", Duration: 900 * milli, Error: notFound}),
		Message(11*second+10*milli, "status", topic.MergedStatus, "u2",
			Status(ref, corev1.PodPending, waits, false, 10*second)),
		Message(11*second+10*milli, "podsync", topic.StatusPatch, "u2", topic.PodStatus{
			Ref: ref, Status: Status(ref, corev1.PodPending, waits, false, 10*second).Status,
		}),
		Message(11*second+20*milli, "podsync", topic.KubeEvent, "podsync", topic.Event{
			Kind: "Pod", Ref: ref, Type: corev1.EventTypeWarning, Reason: "Failed", Message: notFound,
			At: At(11*second + 15*milli),
		}),
		Step(31*second, ref, topic.Step{Name: "ensure image", Container: "app", Duration: 800 * milli, Error: notFound}),
	}
}

// crash was started twice and waits for its third start.
func crash() []bus.Message {
	ref := Ref("u3", "crash")
	ended := func(id string, restarts int, at time.Duration) topic.Container {
		c := running(id, restarts, at-second, at-second)
		c.State, c.ExitCode, c.Reason, c.FinishedAt = topic.ContainerExited, 3, "Error", At(at)
		return c
	}
	died := corev1.ContainerStatus{
		RestartCount: 1,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=app",
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", ContainerID: "containerd://k2",
		}},
	}
	observed := func(after time.Duration, containers ...topic.Container) bus.Message {
		return Message(after, "pleg", topic.PLEGEvent, "u3", topic.PodObservation{
			Ref: ref, At: At(after - milli), Containers: containers,
		})
	}
	return []bus.Message{
		Message(15*second+5*milli, "podsync", topic.PodUpdate, "u3", Pod("u3", "crash", 15*second, nil)),
		Step(15*second+200*milli, ref, topic.Step{Name: "create sandbox", Duration: 150 * milli}),
		Step(15*second+300*milli, ref, topic.Step{Name: "ensure image", Container: "app", Duration: milli}),
		Step(15*second+400*milli, ref, topic.Step{Name: "start container", Container: "app", Duration: 90 * milli}),
		observed(15*second+390*milli, running("k1", 0, 15*second+350*milli, 15*second+380*milli)),
		observed(17*second, ended("k1", 0, 17*second)),
		observed(19*second, running("k2", 1, 18*second+900*milli, 19*second), ended("k1", 0, 17*second)),
		observed(20*second, ended("k2", 1, 20*second), ended("k1", 0, 17*second)),
		Message(20*second+10*milli, "podsync", topic.StatusPatch, "u3", topic.PodStatus{
			Ref: ref, Status: Status(ref, corev1.PodRunning, died, false, 15*second).Status,
		}),
		Message(20*second+20*milli, "status", topic.MergedStatus, "u3",
			Status(ref, corev1.PodRunning, died, false, 15*second)),
	}
}

// old is being ended, and its container takes its time.
func old() []bus.Message {
	ref := Ref("u4", "old")
	grace, deadline := int64(60), At(100*second)
	pod := Pod("u4", "old", -2*time.Hour, nil)
	ends := Pod("u4", "old", -2*time.Hour, func(p *topic.Pod) {
		p.Lifecycle, p.GracePeriodSeconds, p.Deadline = topic.Terminating, &grace, &deadline
	})
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	return []bus.Message{
		Message(30*milli, "podsync", topic.PodUpdate, "u4", pod),
		Message(40*milli, "status", topic.MergedStatus, "u4", Status(ref, corev1.PodRunning, runs, true, -time.Hour)),
		Message(40*second, "podsync", topic.PodUpdate, "u4", ends),
		open(40*second+100*milli, ref, "stop container", "app"),
		Message(50*second, "podsync", topic.PodSources, "", topic.Sources{Ready: true, Pods: []string{"u1", "u2", "u3"}}),
	}
}
