package csinode

import (
	"context"
	"errors"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// server has one CSINode, and counts what is done to it.
type server struct {
	node *storagev1.CSINode
	did  []string
	err  error
}

func (s *server) GetCSINode(_ context.Context, name string) (*storagev1.CSINode, error) {
	if s.node == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "csinodes"}, name)
	}
	return s.node.DeepCopy(), s.err
}

func (s *server) CreateCSINode(_ context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	s.did = append(s.did, "create")
	if s.node != nil || n.Spec.Drivers == nil {
		return nil, errors.New("refused")
	}
	s.node = n
	return n, s.err
}

func (s *server) UpdateCSINode(_ context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	s.did = append(s.did, "update")
	if n.ResourceVersion != s.node.ResourceVersion {
		return nil, errors.New("another version")
	}
	for _, old := range s.node.Spec.Drivers {
		for _, d := range n.Spec.Drivers {
			if d.Name == old.Name && (d.NodeID != old.NodeID || !slices.Equal(d.TopologyKeys, old.TopologyKeys)) {
				return nil, errors.New("spec.drivers: field is immutable")
			}
		}
	}
	n.ResourceVersion += "+"
	s.node = n.DeepCopy()
	return n, s.err
}

func (s *server) DeleteCSINode(_ context.Context, _ string, uid types.UID) error {
	s.did = append(s.did, "delete")
	if uid != s.node.UID {
		return errors.New("another one")
	}
	s.node = nil
	return s.err
}

func (s *server) expect(t *testing.T, w Wanted, did []string, drivers ...string) {
	t.Helper()
	s.did = nil
	if err := Reconcile(t.Context(), s, w); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range s.node.Spec.Drivers {
		got = append(got, d.Name+"="+d.NodeID)
	}
	if !slices.Equal(s.did, did) || !slices.Equal(got, drivers) {
		t.Errorf("did %q, drivers %q; want %q, %q", s.did, got, did, drivers)
	}
	if got := s.node.Annotations[migratedKey]; got != migrated {
		t.Errorf("migrated kinds of volumes %q", got)
	}
}

func TestReconcile(t *testing.T) {
	s := &server{}
	gone := map[string]bool{}
	w := Wanted{
		Node: "n1", UID: "u1", Drivers: map[string]topic.CSINodeInfo{},
		Keeps: func(d string) bool { return !gone[d] },
	}
	s.expect(t, w, []string{"create"})
	s.expect(t, w, nil)
	s.node.Annotations[migratedKey] = "kubernetes.io/of-an-older-release"
	s.expect(t, w, []string{"update"})
	w.Drivers["b"] = topic.CSINodeInfo{
		Name: "b", NodeID: "1", Topology: map[string]string{"z": "1", "a": "2"},
		MaxVolumes: 1 << 40,
	}
	w.Drivers["a"] = topic.CSINodeInfo{Name: "a", NodeID: "2"}
	s.expect(t, w, []string{"update"}, "a=2", "b=1")
	if d := s.node.Spec.Drivers[1]; *d.Allocatable.Count != 1<<31-1 || !slices.Equal(d.TopologyKeys, []string{"a", "z"}) ||
		s.node.Spec.Drivers[0].Allocatable != nil {
		t.Errorf("drivers %+v", s.node.Spec.Drivers)
	}
	s.expect(t, w, nil, "a=2", "b=1")
	// A driver that names the node otherwise is removed before, and one whose count alone changes isn't.
	w.Drivers["a"] = topic.CSINodeInfo{Name: "a", NodeID: "3"}
	w.Drivers["b"] = topic.CSINodeInfo{Name: "b", NodeID: "1", Topology: map[string]string{"z": "1"}}
	s.expect(t, w, []string{"update", "update"}, "a=3", "b=1")
	w.Drivers["a"] = topic.CSINodeInfo{Name: "a", NodeID: "2"}
	s.expect(t, w, []string{"update", "update"}, "a=2", "b=1")
	w.Drivers["b"] = topic.CSINodeInfo{Name: "b", NodeID: "1", Topology: map[string]string{"z": "1"}, MaxVolumes: 3}
	s.expect(t, w, []string{"update"}, "a=2", "b=1")
	// Of b nobody has spoken since the start; then it is gone.
	delete(w.Drivers, "b")
	s.expect(t, w, nil, "a=2", "b=1")
	gone["b"] = true
	s.expect(t, w, []string{"update"}, "a=2")
	// The Node was deleted and registered again.
	s.node.UID, w.UID = "old", "u2"
	s.expect(t, w, []string{"delete", "create"}, "a=2")
	want := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u2"}
	if o := s.node.OwnerReferences; len(o) != 1 || o[0] != want {
		t.Errorf("owners %+v", o)
	}
	s.err = errors.New("away")
	if err := Reconcile(t.Context(), s, w); !errors.Is(err, s.err) {
		t.Errorf("got %v", err)
	}
}
