package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// A CSI driver that answers nonsense is left out by itself: the Node, its conditions and the other drivers go on, from
// the first start on.
func TestNonsenseOfACSIDriver(t *testing.T) {
	c := startCrew(t)
	remove := func() {
		node, err := c.api.CoreV1().Nodes().Get(t.Context(), c.node, metav1.GetOptions{})
		if err == nil {
			node.Labels = map[string]string{}
			_, err = c.api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	}
	long := strings.Repeat("x", 300)
	for i, info := range []topic.CSINodeInfo{
		{NodeID: "1", Topology: map[string]string{"no key": "v"}},
		{NodeID: "1", Topology: map[string]string{"k": "no value"}},
		{NodeID: "1", Topology: map[string]string{"zone.example.kubernetes.io/x": "forbidden"}},
		{NodeID: long},
		{},
		{Name: "no..subdomain", NodeID: "1"},
		{Name: long, NodeID: "1"},
	} {
		if info.Name == "" {
			info.Name = fmt.Sprintf("bad%d.example", i)
		}
		c.must(c.drivers.Set(topic.CSIDriverKey(info.Name), info))
	}
	good := topic.CSINodeInfo{Name: "good.example", NodeID: "one", Topology: map[string]string{"good.example/zone": "a"}}
	c.must(c.drivers.Set(topic.CSIDriverKey(good.Name), good))
	defer remove()
	c.hasDriver(good)
	// What a driver says of the node may change while it is registered, which the API allows in no update.
	good.NodeID, good.Topology = "two", map[string]string{"good.example/zone": "a", "good.example/rack": "b"}
	c.must(c.drivers.Set(topic.CSIDriverKey(good.Name), good))
	c.hasDriver(good)
}

// hasDriver waits until the node has that driver and no other, and is ready.
func (c *crew) hasDriver(want topic.CSINodeInfo) {
	c.t.Helper()
	ids, err := json.Marshal(map[string]string{want.Name: want.NodeID})
	if err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the driver alone on the node", func() bool {
		csi, err := c.api.StorageV1().CSINodes().Get(c.t.Context(), c.node, metav1.GetOptions{})
		if err != nil || len(csi.Spec.Drivers) != 1 {
			return false
		}
		d := csi.Spec.Drivers[0]
		return d.Name == want.Name && d.NodeID == want.NodeID && len(d.TopologyKeys) == len(want.Topology)
	})
	eventually(c.t, "the driver's labels, and a node that is ready", func() bool {
		node, err := c.api.CoreV1().Nodes().Get(c.t.Context(), c.node, metav1.GetOptions{})
		if err != nil || node.Annotations["csi.volume.kubernetes.io/nodeid"] != string(ids) {
			return false
		}
		for key, value := range want.Topology {
			if node.Labels[key] != value {
				return false
			}
		}
		return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	})
}
