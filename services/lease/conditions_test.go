package lease

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

func TestReady(t *testing.T) {
	var (
		ready = &corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(t0),
		}
		notReady = &corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse,
			LastTransitionTime: metav1.NewTime(t0),
		}
	)
	down := func(f *Facts, ago time.Duration) {
		f.Runtime.Reachable, f.Runtime.Message = false, "connection refused"
		f.RuntimeDown = f.Now.Add(-ago)
	}
	state := func(f *Facts, name string, s topic.HealthState, since time.Duration) {
		f.Health[name] = topic.DaemonHealth{State: s, Message: "why", Since: f.Now.Add(-since), Beat: f.Now}
	}
	for name, test := range map[string]struct {
		edit    func(*Facts)
		old     *corev1.NodeCondition
		want    corev1.ConditionStatus
		message string
	}{
		"all is well": {old: notReady, want: corev1.ConditionTrue, message: "kubelet is posting ready status"},
		"no word of the runtime": {
			edit: func(f *Facts) { f.Runtime = nil }, old: ready, want: corev1.ConditionFalse,
			message: "container runtime status check may not have completed yet",
		},
		"taken over from another agent": {
			edit: func(f *Facts) { f.Listening, f.Runtime = f.Now.Add(-20*time.Second), nil; delete(f.Health, "pleg") },
			old:  ready, want: corev1.ConditionTrue,
		},
		"taken over, and nobody comes": {
			edit: func(f *Facts) { f.Listening, f.Runtime = f.Now.Add(-31*time.Second), nil; delete(f.Health, "pleg") },
			old:  ready, want: corev1.ConditionFalse,
			message: "[container runtime status check may not have completed yet, kubelot-pleg has not started yet]",
		},
		"a first start on a node that wasn't Ready": {
			edit: func(f *Facts) { f.Listening = f.Now; delete(f.Health, "pleg") }, old: notReady,
			want: corev1.ConditionFalse, message: "kubelot-pleg has not started yet",
		},
		"no network": {
			edit: func(f *Facts) {
				f.Runtime.NetworkReady = topic.RuntimeCondition{Reason: "NetworkPluginNotReady", Message: "cni"}
			}, old: ready, want: corev1.ConditionFalse,
			message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni",
		},
		"runtime restarts": {
			edit: func(f *Facts) { down(f, 20*time.Second) }, old: ready,
			want: corev1.ConditionTrue,
		},
		"runtime is down": {
			edit: func(f *Facts) { down(f, 31*time.Second) }, old: ready,
			want: corev1.ConditionFalse, message: "container runtime is down: connection refused",
		},
		"runtime not up yet": {
			edit: func(f *Facts) { down(f, time.Second) }, old: notReady,
			want: corev1.ConditionFalse, message: "container runtime is down",
		},
		"runtime down, first report": {edit: func(f *Facts) { down(f, time.Second) }, want: corev1.ConditionFalse},
		"podsync restarts in order": {
			edit: func(f *Facts) { state(f, "podsync", topic.Stopped, 20*time.Second) },
			old:  ready, want: corev1.ConditionTrue,
		},
		"podsync is stopped": {
			edit: func(f *Facts) { state(f, "podsync", topic.Stopped, 40*time.Second) },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-podsync has been stopped",
		},
		"podsync was killed": {edit: func(f *Facts) {
			h := f.Health["podsync"]
			h.Beat = f.Now.Add(-50 * time.Second)
			f.Health["podsync"] = h
		}, old: ready, want: corev1.ConditionTrue},
		"podsync is dead": {edit: func(f *Facts) {
			h := f.Health["podsync"]
			h.Beat = f.Now.Add(-100 * time.Second)
			f.Health["podsync"] = h
		}, old: ready, want: corev1.ConditionFalse, message: "kubelot-podsync last reported"},
		"nobody reports status": {
			edit: func(f *Facts) { state(f, "status", topic.Stopped, time.Minute) },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-status has been stopped",
		},
		"the whole crew was restarted, which takes long": {
			edit: func(f *Facts) {
				f.Listening = f.Now.Add(-20 * time.Second)
				state(f, "status", topic.Stopped, time.Minute)
				state(f, "pleg", topic.Unhealthy, time.Minute)
				f.Health["probe"] = topic.DaemonHealth{State: topic.Healthy, Beat: f.Now.Add(-2 * time.Minute)}
			},
			old: ready, want: corev1.ConditionTrue,
		},
		"the whole crew was restarted, and one doesn't come": {
			edit: func(f *Facts) {
				f.Listening = f.Now.Add(-31 * time.Second)
				state(f, "status", topic.Stopped, time.Minute)
			},
			old: ready, want: corev1.ConditionFalse, message: "kubelot-status has been stopped",
		},
		"lease alone was restarted, on a node that isn't Ready": {
			edit: func(f *Facts) {
				f.Listening = f.Now
				state(f, "status", topic.Stopped, time.Minute)
			},
			old: notReady, want: corev1.ConditionFalse, message: "kubelot-status has been stopped",
		},
		"nobody mounts volumes": {
			edit: func(f *Facts) { delete(f.Health, "volume") }, old: ready,
			want: corev1.ConditionFalse, message: "kubelot-volume has not started yet",
		},
		"nobody probes": {
			edit: func(f *Facts) { state(f, "probe", topic.Stopped, time.Minute) },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-probe has been stopped",
		},
		"gc is stopped": {
			edit: func(f *Facts) { state(f, "gc", topic.Stopped, time.Hour) }, old: ready,
			want: corev1.ConditionTrue,
		},
		"nobody allocates, and nobody asks for it": {
			edit: func(f *Facts) { state(f, "resource", topic.Stopped, time.Hour) }, old: ready,
			want: corev1.ConditionTrue,
		},
		"nobody allocates under a policy": {
			edit: func(f *Facts) { f.Exclusive = true; state(f, "resource", topic.Stopped, time.Minute) },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-resource has been stopped",
		},
		"the allocator restarts under a policy": {
			edit: func(f *Facts) { f.Exclusive = true; state(f, "resource", topic.Stopped, 20*time.Second) },
			old:  ready, want: corev1.ConditionTrue,
		},
		"a policy that can't be kept": {
			edit: func(f *Facts) { f.Exclusive = true; state(f, "resource", topic.Unhealthy, time.Minute) },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-resource is not healthy: why",
		},
		"nobody allocates devices of a plugin": {
			edit: func(f *Facts) {
				f.Devices = &topic.NodeResources{Devices: map[corev1.ResourceName]topic.DeviceCount{"a.b/c": {}}}
				state(f, "resource", topic.Stopped, time.Minute)
			},
			old: ready, want: corev1.ConditionFalse, message: "kubelot-resource has been stopped",
		},
		"nobody prepares claims of a driver": {
			edit: func(f *Facts) { f.Plugins = map[string]bool{"DRAPlugin.a": true}; delete(f.Health, "resource") },
			old:  ready, want: corev1.ConditionFalse, message: "kubelot-resource has not started yet",
		},
		"podsync not started": {
			edit: func(f *Facts) { delete(f.Health, "podsync") },
			want: corev1.ConditionFalse, message: "kubelot-podsync has not started yet",
		},
		"pleg is unhealthy": {
			edit: func(f *Facts) { state(f, "pleg", topic.Unhealthy, time.Minute) },
			old:  ready, want: corev1.ConditionFalse, message: "PLEG is not healthy: why",
		},
		"pleg is degraded": {
			edit: func(f *Facts) { state(f, "pleg", topic.Degraded, time.Hour) },
			old:  ready, want: corev1.ConditionTrue,
		},
		"the bus is away": {
			edit: func(f *Facts) { f.Health = healthy(f.Now.Add(-time.Hour)) }, old: ready,
			want: corev1.ConditionTrue,
		},
		"the bus is away, and a daemon sleeps": {
			edit: func(f *Facts) {
				f.Health = healthy(f.Now.Add(-time.Hour))
				h := f.Health["resource"]
				h.Asleep = true
				f.Health["resource"] = h
			},
			old: ready, want: corev1.ConditionTrue,
		},
		"the bus is away, nothing was known": {edit: func(f *Facts) { f.Health = nil }, want: corev1.ConditionFalse},
		"this daemon restarts without a bus": {
			edit: func(f *Facts) { f.Health, f.Runtime = nil, nil }, old: ready,
			want: corev1.ConditionTrue,
		},
		"the control plane gave the node up": {
			edit: func(f *Facts) { f.Health = nil },
			old:  &corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, want: corev1.ConditionFalse,
		},
		"no machine": {
			edit: func(f *Facts) { f.Machine = nil }, want: corev1.ConditionFalse,
			message: "missing node capacity for resources: cpu, memory, pods",
		},
		"two problems": {
			edit:    func(f *Facts) { f.Runtime = nil; delete(f.Health, "pleg") },
			want:    corev1.ConditionFalse,
			message: "[container runtime status check may not have completed yet, kubelot-pleg has not started yet]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFacts()
			f.Now = t0.Add(time.Hour)
			f.Health = healthy(f.Now)
			if test.edit != nil {
				test.edit(&f)
			}
			current := build(testConfig(), f, nil)
			current.Status.Conditions = nil
			if test.old != nil {
				current.Status.Conditions = []corev1.NodeCondition{*test.old}
			}
			c := condition(Conditions(f, current.Status), corev1.NodeReady)
			if c.Status != test.want || !strings.HasPrefix(c.Message, test.message) {
				t.Errorf("Ready is %s: %q, want %s: %q", c.Status, c.Message, test.want, test.message)
			}
			if moved := !c.LastTransitionTime.Time.Equal(t0); test.old != nil && test.old.Status != corev1.ConditionUnknown &&
				moved != (test.old.Status != c.Status) {
				t.Errorf("last transition at %s for a change from %s to %s", c.LastTransitionTime, test.old.Status, c.Status)
			}
		})
	}
}

func TestPressure(t *testing.T) {
	f := goodFacts()
	f.Pressure = &topic.Pressure{Disk: true}
	conditions := Conditions(f, corev1.NodeStatus{})
	for typ, want := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure:   "KubeletHasDiskPressure",
		corev1.NodePIDPressure:    "KubeletHasSufficientPID",
	} {
		if c := condition(conditions, typ); c.Reason != want ||
			(c.Status == corev1.ConditionTrue) != (typ == corev1.NodeDiskPressure) {
			t.Errorf("%s is %s (%s), want the reason %s", typ, c.Status, c.Reason, want)
		}
	}
	turnedOn := turned(Conditions(goodFacts(), corev1.NodeStatus{}), conditions)
	if len(turnedOn) != 1 || eventReason(turnedOn[0]) != "NodeHasDiskPressure" {
		t.Errorf("turned %v", turnedOn)
	}
}

// After a reboot the bus is empty: until gc has told, the pressure is as the Node has it.
func TestPressureStaysUntilGCHasTold(t *testing.T) {
	f := goodFacts()
	f.Pressure = &topic.Pressure{Memory: true}
	before := corev1.NodeStatus{Conditions: Conditions(f, corev1.NodeStatus{})}
	f.Pressure, f.Listening = nil, f.Now
	for after, want := range map[time.Duration]int{0: 0, grace - time.Second: 0, grace: 1} {
		f.Now = f.Listening.Add(after)
		if got := turned(before.Conditions, Conditions(f, before)); len(got) != want {
			t.Errorf("after %s: turned %v", after, got)
		}
	}
	f.Now, f.Pressure = f.Listening, &topic.Pressure{}
	if got := turned(before.Conditions, Conditions(f, before)); len(got) != 1 {
		t.Errorf("once gc has told: turned %v", got)
	}
}
