package apiserver

import (
	"context"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/lease"
	"kubelot.dev/services/status"
)

const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// crew is a bus with the lease and status daemons on it, and a podsync that hands on what the API server says.
type crew struct {
	t       *testing.T
	api     *kubernetes.Clientset
	node    string
	podsync *bus.Conn
	pods    *bus.Writer[topic.Pod]
	patches *bus.Writer[topic.PodStatus]
	sources *bus.Writer[topic.Sources]
	events  *bus.Publisher[topic.Event]
	drivers *bus.Writer[topic.CSINodeInfo]
}

func testConfig(node string) *config.Config {
	qps := int32(50)
	return &config.Config{
		NodeName: node, RegisterNode: true, Kubeconfig: nodeKubeconfig(),
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			MaxPods: 110, Port: 10250, KubeAPIQPS: &qps, KubeAPIBurst: 100, EventRecordQPS: &qps, EventBurst: 100,
			NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second},
			NodeStatusReportFrequency: metav1.Duration{Duration: 5 * time.Minute},
			NodeLeaseDurationSeconds:  4, // renewed each second
		},
	}
}

func startCrew(t *testing.T) *crew {
	t.Helper()
	b := bustest.New()
	c := &crew{t: t, api: admin(t), node: nodeName(t), podsync: b.Conn("podsync")}
	t.Cleanup(c.podsync.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, spec := range []daemon.Spec{lease.Daemon, status.Daemon} {
		conn := b.Conn(spec.Name)
		done := make(chan error)
		go func() {
			done <- daemon.RunWith(ctx, spec, daemon.NewEnv(spec, testConfig(c.node), conn, slog.New(slog.DiscardHandler)))
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", spec.Name, err)
			}
			conn.Close()
		})
	}
	c.pods, c.patches = topic.PodUpdate.Writer(c.podsync), topic.StatusPatch.Writer(c.podsync)
	c.sources, c.events = topic.PodSources.Writer(c.podsync), topic.KubeEvent.Publisher(c.podsync)
	c.facts(b)
	c.handOn(ctx)
	return c
}

// facts says what the other daemons would say of the node.
func (c *crew) facts(b *bustest.Bus) {
	stats, pleg := b.Conn("stats"), b.Conn("pleg")
	c.t.Cleanup(stats.Close)
	c.t.Cleanup(pleg.Close)
	now := time.Now()
	// They say it only once, and must not count as silent when a test takes long.
	well := topic.DaemonHealth{State: topic.Healthy, Since: now, Beat: now.Add(time.Hour)}
	for _, name := range []string{"volume", "probe"} {
		conn := b.Conn(name)
		c.t.Cleanup(conn.Close)
		c.must(topic.Health.Writer(conn).Set(name, well))
		if name == "volume" {
			c.drivers = topic.CSIDriver.Writer(conn)
		}
	}
	c.must(
		topic.NodeMachine.Writer(stats).Set("", topic.Machine{
			NumCores: 2, MemoryBytes: 8 << 30,
			RootFS: topic.Filesystem{CapacityBytes: 50 << 30}, BootID: "b",
		}),
		topic.NodeRuntime.Writer(pleg).Set("", topic.Runtime{
			Name: "containerd", Version: "2.4.2", Reachable: true,
			RuntimeReady: topic.RuntimeCondition{Status: true}, NetworkReady: topic.RuntimeCondition{Status: true},
		}),
		topic.Health.Writer(pleg).Set("pleg", well), topic.Health.Writer(c.podsync).Set("podsync", well),
	)
}

// handOn publishes the API server's pods and mirror pods, as podsync does.
func (c *crew) handOn(ctx context.Context) {
	mirrors, objects := topic.PodMirror.Writer(c.podsync), topic.PodObject.Writer(c.podsync)
	changes := nodeClient(c.t).WatchPods(ctx, c.node)
	done := make(chan struct{})
	c.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for change := range changes {
			p := change.Object
			switch {
			case change.Synced:
			case p.Annotations[mirrorAnnotation] != "" && change.Deleted:
				c.must(mirrors.Delete(string(p.UID)))
			case p.Annotations[mirrorAnnotation] != "":
				c.must(mirrors.Set(string(p.UID), topic.MirrorPod{
					Ref: topic.RefOf(p), Hash: p.Annotations[mirrorAnnotation], Deleting: p.DeletionTimestamp != nil,
					ResourceVersion: p.ResourceVersion, Status: p.Status,
				}))
			case change.Deleted:
				c.must(objects.Delete(string(p.UID)), c.pods.Delete(string(p.UID)), c.patches.Delete(string(p.UID)))
			default:
				admitted := *p
				admitted.Status = corev1.PodStatus{}
				c.must(
					objects.Set(string(p.UID), topic.APIPod{
						Ref: topic.RefOf(p), ResourceVersion: p.ResourceVersion,
						Status: p.Status,
					}),
					c.pods.Set(string(p.UID), topic.Pod{Pod: &admitted, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
				)
			}
		}
	}()
}

func (c *crew) must(errs ...error) {
	c.t.Helper()
	for _, err := range errs {
		if err != nil {
			c.t.Error(err)
		}
	}
}

// running is the status of a pod whose container runs.
func running(p *corev1.Pod, source topic.Source) topic.PodStatus {
	started := metav1.Now()
	return topic.PodStatus{Ref: topic.RefOf(p), Source: source, Status: corev1.PodStatus{
		Phase: corev1.PodRunning, ObservedGeneration: p.Generation, HostIP: "10.0.0.5", PodIP: "10.1.0.5",
		HostIPs: []corev1.HostIP{{IP: "10.0.0.5"}}, PodIPs: []corev1.PodIP{{IP: "10.1.0.5"}}, StartTime: &started,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "example.com/app:1", ImageID: "sha256:1", ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}},
	}}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pod is the API server's pod, or nil.
func (c *crew) pod(ns, name string) *corev1.Pod {
	p, err := c.api.CoreV1().Pods(ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (c *crew) waitForNode() *corev1.Node {
	c.t.Helper()
	var node *corev1.Node
	eventually(c.t, "the node to be Ready", func() bool {
		n, err := c.api.CoreV1().Nodes().Get(c.t.Context(), c.node, metav1.GetOptions{})
		if err != nil {
			return false
		}
		node = n
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				return cond.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	return node
}

func TestTheNodeRegistersAndItsLeaseIsRenewed(t *testing.T) {
	c := startCrew(t)
	node := c.waitForNode()
	if node.Status.Allocatable.Pods().Value() != 110 || node.Status.NodeInfo.KubeletVersion != kube.KubernetesVersion ||
		len(node.Status.Addresses) < 2 {
		t.Errorf("status %+v", node.Status)
	}
	var first *coordinationv1.Lease
	eventually(t, "the lease", func() bool {
		l, err := c.api.CoordinationV1().Leases(kube.NamespaceNodeLease).Get(t.Context(), c.node, metav1.GetOptions{})
		first = l
		return err == nil
	})
	eventually(t, "a renewal", func() bool {
		l, err := c.api.CoordinationV1().Leases(kube.NamespaceNodeLease).Get(t.Context(), c.node, metav1.GetOptions{})
		return err == nil && l.Spec.RenewTime.After(first.Spec.RenewTime.Time) && len(l.OwnerReferences) == 1 &&
			l.OwnerReferences[0].UID == node.UID
	})
}

func TestAPodsLifeIsReported(t *testing.T) {
	c := startCrew(t)
	c.waitForNode()
	ns := namespace(t, c.api)
	p := boundPod(t, c.api, ns, "web")
	began := time.Now()
	c.must(c.patches.Set(string(p.UID), running(p, topic.SourceAPI)))
	eventually(t, "Ready", func() bool { p := c.pod(ns, "web"); return p != nil && isReady(p) })
	t.Logf("Ready after %s", time.Since(began))
	if p := c.pod(ns, "web"); p.Status.ObservedGeneration != p.Generation || p.Status.PodIP != "10.1.0.5" {
		t.Errorf("status %+v", p.Status)
	}
	if err := c.api.CoreV1().Pods(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion mark", func() bool {
		p := c.pod(ns, "web")
		return p != nil && p.DeletionTimestamp != nil
	})
	last := running(p, topic.SourceAPI)
	last.Finished = true
	last.Status.Phase = corev1.PodFailed
	last.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 143, Reason: "Error",
	}}
	began = time.Now()
	c.must(c.patches.Set(string(p.UID), last))
	eventually(t, "the pod to be gone", func() bool { return c.pod(ns, "web") == nil })
	t.Logf("gone after %s", time.Since(began))
}

func TestAStaticPodIsMirrored(t *testing.T) {
	c := startCrew(t)
	c.waitForNode()
	static := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "static-" + c.node, UID: "5f5f5f5f",
			Annotations: map[string]string{"kubernetes.io/config.hash": "5f5f5f5f", "kubernetes.io/config.source": "file"},
		},
		Spec: corev1.PodSpec{NodeName: c.node, Containers: []corev1.Container{{Name: "app", Image: "example.com/app:1"}}},
	}
	u := topic.Pod{Pod: static, Source: topic.SourceFile, Lifecycle: topic.Syncing}
	c.must(c.sources.Set("", topic.Sources{Ready: true, Pods: []string{"5f5f5f5f"}}), c.pods.Set("5f5f5f5f", u),
		c.patches.Set("5f5f5f5f", running(static, topic.SourceFile)))
	var first *corev1.Pod
	mirrored := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			p := c.pod("default", static.Name)
			if p == nil || !isReady(p) || first != nil && p.UID == first.UID {
				return false
			}
			first = p
			return true
		})
	}
	mirrored("the mirror pod to be Ready")
	// As the node lifecycle controller does with the pods of a node that was silent.
	c.callUnready(first)
	eventually(t, "the mirror pod to be Ready again", func() bool {
		p := c.pod("default", static.Name)
		return p != nil && isReady(p)
	})
	if err := c.api.CoreV1().Pods("default").Delete(t.Context(), static.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mirrored("a new mirror pod after somebody deleted it")
	u.Lifecycle = topic.Terminated
	c.must(c.sources.Set("", topic.Sources{Ready: true}), c.pods.Set("5f5f5f5f", u))
	eventually(t, "the mirror pod to go with its manifest", func() bool { return c.pod("default", static.Name) == nil })
}

func (c *crew) callUnready(p *corev1.Pod) {
	c.t.Helper()
	patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	got, err := c.api.CoreV1().Pods(p.Namespace).Patch(c.t.Context(), p.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil || isReady(got) {
		c.t.Fatalf("calling %s unready: %v", p.Name, err)
	}
}

func TestEventsAreRecorded(t *testing.T) {
	c := startCrew(t)
	ns := namespace(t, c.api)
	p := boundPod(t, c.api, ns, "web")
	for range 2 {
		c.must(c.events.Publish("podsync", topic.Event{
			Kind: "Pod", Ref: topic.RefOf(p), FieldPath: "spec.containers{app}", Type: corev1.EventTypeWarning,
			Reason: "BackOff", Message: "Back-off restarting failed container", At: time.Now(),
		}))
	}
	eventually(t, "the Event, counted twice", func() bool {
		list, err := c.api.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BackOff"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 2 && list.Items[0].Source.Component == "kubelet"
	})
}
