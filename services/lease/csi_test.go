package lease

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// up starts the service on a node that is Ready.
func (r *rig) up() (stop func()) {
	stop = r.start()
	r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
	r.beats()
	return stop
}

func ebs(zone string) topic.CSINodeInfo {
	return topic.CSINodeInfo{Name: "ebs.example", NodeID: "i-1", Topology: map[string]string{"example/zone": zone}}
}

// A driver is in the CSINode, the annotation and the labels while it is registered; its labels stay after it.
func TestDriversOnTheNode(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.up()()
		began := time.Now()
		if got := server.csiDrivers(); got == nil || len(got) > 0 {
			t.Errorf("the CSINode has the drivers %q", got)
		}
		r.must(r.drivers.Set(topic.CSIDriverKey("ebs.example"), ebs("a")))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		node, _ := server.get()
		if got := server.csiDrivers(); !slices.Equal(got, []string{"ebs.example"}) {
			t.Errorf("the CSINode has the drivers %q", got)
		}
		if node.Annotations[annotationNodeIDs] != `{"ebs.example":"i-1"}` || node.Labels["example/zone"] != "a" {
			t.Errorf("annotations %v, labels %v", node.Annotations, node.Labels)
		}
		r.must(r.drivers.Delete(topic.CSIDriverKey("ebs.example")))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		node, _ = server.get()
		if _, there := node.Annotations[annotationNodeIDs]; there || node.Labels["example/zone"] != "a" ||
			len(server.csiDrivers()) > 0 {
			t.Errorf("annotations %v, labels %v, CSINode %q", node.Annotations, node.Labels, server.csiDrivers())
		}
		// Another zone than the label's is refused.
		r.must(r.drivers.Set(topic.CSIDriverKey("ebs.example"), ebs("b")))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := server.csiDrivers(); len(got) > 0 {
			t.Errorf("the CSINode has the drivers %q, whose topology contradicts the labels", got)
		}
		if !strings.HasPrefix(r.said.text, "degraded ") || !strings.Contains(r.said.text, "ebs.example") {
			t.Errorf("the daemon's health is %q, want what is wrong with the driver", r.said.text)
		}
		r.must(r.drivers.Delete(topic.CSIDriverKey("ebs.example")))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if r.said.text != "healthy " {
			t.Errorf("the daemon's health is %q although the driver is gone", r.said.text)
		}
		if time.Since(began) > time.Minute {
			t.Error("the test sleeps longer than it says")
		}
	})
}

// The labels of a driver's topology are on the Node at once, not with the next report, and before the CSINode has their
// keys: a provisioner that reads a key there fails where the label is missing.
func TestLabelsComeBeforeTheCSINode(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.up()()
		expect := func(label string, drivers ...string) {
			t.Helper()
			synctest.Wait()
			node, _ := server.get()
			if got := server.csiDrivers(); node.Labels["late.example/zone"] != label || !slices.Equal(got, drivers) {
				t.Errorf("labels %v, the CSINode has the drivers %q; want %q, %q", node.Labels, got, label, drivers)
			}
		}
		mislead := func(on bool) {
			server.mu.Lock()
			defer server.mu.Unlock()
			server.misled = on
		}
		r.must(r.drivers.Set(topic.CSIDriverKey("ebs.example"), ebs("a")))
		time.Sleep(time.Second)
		expect("", "ebs.example")
		mislead(true)
		late := topic.CSINodeInfo{Name: "late.example", NodeID: "2", Topology: map[string]string{"late.example/zone": "b"}}
		r.must(r.drivers.Set(topic.CSIDriverKey(late.Name), late))
		time.Sleep(3 * time.Second)
		expect("", "ebs.example")
		mislead(false)
		time.Sleep(2 * writeRetryMax)
		expect("b", "ebs.example", "late.example")
	})
}

// A driver that answers nonsense is left out, and keeps no other from the node: the API server would refuse the whole
// Node and CSINode.
func TestPlacedLeavesOutNonsense(t *testing.T) {
	good := topic.CSINodeInfo{Name: "good", NodeID: "1", Topology: map[string]string{
		"topology.kubernetes.io/zone": "a", "vendor.node.kubernetes.io/rack": "1", "vendor.example/host": "h", "plain": "x",
	}}
	with := func(key, value string) topic.CSINodeInfo {
		return topic.CSINodeInfo{NodeID: "1", Topology: map[string]string{key: value}}
	}
	bad := map[string]topic.CSINodeInfo{
		"the node ID is empty":       {},
		"the node ID has 300":        {NodeID: strings.Repeat("x", 300)},
		`topology key "no key"`:      with("no key", "v"),
		`"no value", the value`:      with("key", "no value"),
		`"vendor.k8s.io/zone"`:       with("vendor.k8s.io/zone", "a"),
		`"example.kubernetes.io/x"`:  with("example.kubernetes.io/x", "a"),
		`"node-restriction.kubernet`: with("node-restriction.kubernetes.io/x", "a"),
		"value collision":            with("vendor.example/host", "another"),
	}
	for want, info := range bad {
		info.Name = "z-bad"
		all := map[string]topic.CSINodeInfo{"good": good, "z-bad": info}
		fit, problems := placed(all, map[string]string{"mine": "yes"})
		if len(fit) != 1 || fit["good"].Name != "good" || len(problems) != 1 || !strings.Contains(problems[0], want) {
			t.Errorf("%s: fit are %v, the problems %q", want, fit, problems)
		}
		node := build(testConfig(), Facts{CSI: CSI{Drivers: all}}, nil)
		if node.Annotations[annotationNodeIDs] != `{"good":"1"}` || node.Labels["vendor.example/host"] != "h" {
			t.Errorf("%s: annotations %v, labels %v", want, node.Annotations, node.Labels)
		}
	}
	// Somebody who may has labelled the node.
	info := with("example.kubernetes.io/x", "a")
	info.Name = "d"
	labels := map[string]string{"example.kubernetes.io/x": "a"}
	if fit, problems := placed(map[string]topic.CSINodeInfo{"d": info}, labels); len(fit) != 1 {
		t.Errorf("left out: %q", problems)
	}
}

// What an earlier process has written of drivers stays until they have had time to register.
func TestDriversOfAnEarlierProcess(t *testing.T) {
	const ids = `{"late":"1"}`
	server := &server{
		node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "uid-1", Annotations: map[string]string{annotationNodeIDs: ids},
		}},
		csiNode: &storagev1.CSINode{Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "late", NodeID: "1"}},
		}},
	}
	run(t, server, func(r *rig) {
		defer r.up()()
		time.Sleep(unspokenAfter - time.Second)
		synctest.Wait()
		node, _ := server.get()
		if got := server.csiDrivers(); !slices.Equal(got, []string{"late"}) || node.Annotations[annotationNodeIDs] != ids {
			t.Errorf("the CSINode has the drivers %q, the Node the annotations %v", got, node.Annotations)
		}
		time.Sleep(csiNodePeriod + 10*time.Second)
		synctest.Wait()
		node, _ = server.get()
		if got := server.csiDrivers(); len(got) > 0 || node.Annotations[annotationNodeIDs] != "" {
			t.Errorf("the CSINode has the drivers %q, the Node the annotations %v", got, node.Annotations)
		}
	})
}

// refusing is an API server that refuses to tell of CSINodes.
type refusing struct {
	*server
	refuse bool
}

func (r *refusing) allow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = false
}

func (r *refusing) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse {
		return nil, errDown
	}
	return r.server.GetCSINode(ctx, name)
}

// Without a CSINode the node isn't Ready, and becomes so at once when it is there.
func TestNotReadyWithoutACSINode(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		refuses := &refusing{server: server, refuse: true}
		stop := r.startWith(refuses)
		defer func() { stop() }()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		node, _ := server.get()
		c := condition(node.Status.Conditions, corev1.NodeReady)
		if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, errNoCSINode.Error()) {
			t.Errorf("Ready is %s: %s", c.Status, c.Message)
		}
		refuses.allow()
		r.beats()
		time.Sleep(csiRetryMax)
		r.beats()
		time.Sleep(csiRetryMax)
		synctest.Wait()
		if node, _ = server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Errorf("Ready is %+v", condition(node.Status.Conditions, corev1.NodeReady))
		}
		// A restart of a node that is Ready doesn't change that, though the API server refuses for a moment.
		stop()
		refuses.refuse = true
		stop = r.startWith(refuses)
		r.beats()
		synctest.Wait()
		if node, _ = server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Errorf("Ready is %+v", condition(node.Status.Conditions, corev1.NodeReady))
		}
	})
}

// The volumes in use are written as soon as they are known to change, and not before they are known at all.
func TestVolumesInUse(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		stop := r.up()
		r.must(r.volumes.Set("", topic.VolumesInUse{Names: []string{"kubernetes.io/csi/d^1"}}))
		node, _ := server.get()
		if got := node.Status.VolumesInUse; !slices.Equal(got, []corev1.UniqueVolumeName{"kubernetes.io/csi/d^1"}) {
			t.Errorf("in use are %q", got)
		}
		stop()
		r.onAnotherBus()
		defer r.up()()
		time.Sleep(time.Minute)
		r.beats()
		if node, _ = server.get(); len(node.Status.VolumesInUse) != 1 {
			t.Errorf("in use are %q, though the volume daemon hasn't told", node.Status.VolumesInUse)
		}
		r.must(r.volumes.Set("", topic.VolumesInUse{}))
		if node, _ = server.get(); len(node.Status.VolumesInUse) != 0 {
			t.Errorf("in use are %q", node.Status.VolumesInUse)
		}
	})
}
