package memory

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestNewRefuses(t *testing.T) {
	some := Reserved{0: {corev1.ResourceMemory: gi}}
	for want, f := range map[string]func() (*State, error){
		`unknown policy: "static"`: func() (*State, error) {
			return New("static", nil, some)
		},
		`policy "BestEffort" is not available for platform "linux"`: func() (*State, error) {
			return New("BestEffort", nil, some)
		},
		"you should specify the system reserved memory": func() (*State, error) {
			return New(PolicyStatic, nil, Reserved{0: {huge: 1}})
		},
		"nodes 0 to 63 only": func() (*State, error) {
			return New(PolicyStatic, []Node{{ID: 64}}, some)
		},
		"NUMA node 1 twice": func() (*State, error) {
			return New(PolicyStatic, []Node{{ID: 1}, {ID: 1}}, some)
		},
		"has 1Mi of memory, but reservedMemory keeps 1Gi of it": func() (*State, error) {
			return New(PolicyStatic, []Node{{Memory: 1 << 20}}, some)
		},
		"too few for its huge pages": func() (*State, error) {
			return New(PolicyStatic, []Node{{Memory: gi, HugePages: map[uint64]uint64{gi: 2}}}, some)
		},
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestCheckReserved(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	on := func(node int32, l corev1.ResourceList) kubeletv1beta1.MemoryReservation {
		return kubeletv1beta1.MemoryReservation{NumaNode: node, Limits: l}
	}
	nodes := []Node{node4(0), node4(1)}
	reserved, err := checkReserved(nodes, list("cpu", "1", "memory", "1536Mi", "hugepages-1Gi", "0"),
		[]kubeletv1beta1.MemoryReservation{on(0, list("memory", "1Gi")), on(1, list("memory", "0.5Gi"))})
	want := Reserved{0: {"memory": gi}, 1: {"memory": gi / 2}}
	if err != nil || !reflect.DeepEqual(reserved, want) {
		t.Errorf("%v, %v; want %v", reserved, err, want)
	}
	for want, tt := range map[string]struct {
		node corev1.ResourceList
		list []kubeletv1beta1.MemoryReservation
	}{
		"the reserved memory configuration references a NUMA node 2 that does not exist on this machine": {
			list: []kubeletv1beta1.MemoryReservation{on(2, list("memory", "1Gi"))},
		},
		`the total amount "0" of type "memory" is not equal to the value "100Mi" determined by Node Allocatable feature`: {
			node: list("memory", "100Mi"),
		},
		`the total amount "2Gi" of type "hugepages-1Gi" is not equal to the value "0" determined by ` +
			"Node Allocatable feature": {
			list: []kubeletv1beta1.MemoryReservation{
				on(0, list("hugepages-1Gi", "1Gi")), on(1, list("hugepages-1Gi", "1Gi")),
			},
		},
		"could not covert a variable of type Quantity to int64": {
			node: list("memory", "100E"), list: []kubeletv1beta1.MemoryReservation{on(0, list("memory", "100E"))},
		},
	} {
		if _, err := checkReserved(nodes, tt.node, tt.list); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestReservations is for test/differential/statefile, which has asked the kubelet's own code.
func TestReservations(t *testing.T) {
	dir := os.Getenv("KUBELOT_RESERVATIONS")
	if dir == "" {
		t.Skip("test/differential/statefile gives the reservations")
	}
	data, err := os.ReadFile(filepath.Join(dir, "reservations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Nodes           []Node
		NodeAllocatable corev1.ResourceList
		List            []kubeletv1beta1.MemoryReservation
		Errors          []string
	}
	if err := json.Unmarshal(data, &cases); err != nil { //nolint:musttag // the keys are the names of the fields
		t.Fatal(err)
	}
	for _, c := range cases {
		text := ""
		reserved, err := checkReserved(c.Nodes, c.NodeAllocatable, c.List)
		if err == nil {
			_, err = New(PolicyStatic, c.Nodes, reserved)
		}
		if err != nil {
			text = err.Error()
		}
		if !slices.Contains(c.Errors, text) {
			t.Errorf("%+v:\nwe say          %s\nthe kubelet says %q", c.List, text, c.Errors)
		}
	}
	t.Logf("reservations: %d", len(cases))
}
