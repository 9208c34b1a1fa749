package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

var errDown = errors.New("dial tcp: connection refused")

// server is the pods part of an API server: patches are applied as the real one applies them.
type server struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod // by namespace/name
	version int
	down    bool
	// fails is its answer to all calls.
	fails error
	// blind makes deletions find no pod.
	blind bool
	// forgets drops what the server doesn't keep of a written status; refuse is its answer to patches of default/web,
	// keeps that to deletions.
	forgets func(*corev1.PodStatus)
	refuse  error
	keeps   error
	// limit is how many calls the server bears.
	limit int
	log   []string
}

func newServer(pods ...*corev1.Pod) *server {
	s := &server{pods: map[string]*corev1.Pod{}, version: 100}
	for _, p := range pods {
		s.pods[p.Namespace+"/"+p.Name] = p.DeepCopy()
	}
	return s
}

func (s *server) call(verb, key string) error {
	if s.down || s.limit > 0 && len(s.log) >= s.limit {
		return errDown
	}
	if s.fails != nil {
		return s.fails
	}
	s.log = append(s.log, verb+" "+key)
	return nil
}

// set changes the server.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *server) setBlind(blind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = blind
}

// calls are the successful calls since the last time.
func (s *server) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *server) pod(key string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[key]; p != nil {
		return p.DeepCopy()
	}
	return nil
}

// put makes the server have the pod, with a version of its own.
func (s *server) put(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pods[p.Namespace+"/"+p.Name] = p
}

func (s *server) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("get", namespace+"/"+name); err != nil {
		return nil, err
	}
	if p := s.pods[namespace+"/"+name]; p != nil {
		return p.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (s *server) CreatePod(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	if err := s.call("create", key); err != nil {
		return nil, err
	}
	if s.pods[key] != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("pods"), pod.Name)
	}
	s.version++
	made := pod.DeepCopy()
	made.UID = types.UID("mirror-" + strconv.Itoa(s.version))
	made.ResourceVersion = strconv.Itoa(s.version)
	s.pods[key] = made
	return made.DeepCopy(), nil
}

func (s *server) PatchPodStatus(_ context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	if err := s.call("patch", key); err != nil {
		return nil, err
	}
	p := s.pods[key]
	if p == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if s.refuse != nil && name == "web" {
		return nil, s.refuse
	}
	before, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, err
	}
	if patched.UID != p.UID {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), name,
			fmt.Errorf("UID in precondition: %s, UID in object meta: %s", patched.UID, p.UID))
	}
	if s.forgets != nil {
		s.forgets(&patched.Status)
	}
	if !equality.Semantic.DeepEqual(p.Status, patched.Status) {
		s.version++ // what changes nothing isn't stored
	}
	patched.ResourceVersion = strconv.Itoa(s.version)
	s.pods[key] = patched
	return patched.DeepCopy(), nil
}

func (s *server) DeletePod(_ context.Context, namespace, name, uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	if err := s.call("delete", key); err != nil {
		return err
	}
	p := s.pods[key]
	if p == nil || s.blind {
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if s.keeps != nil {
		return s.keeps
	}
	if string(p.UID) != uid {
		return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("the UID in the precondition is another"))
	}
	delete(s.pods, key)
	return nil
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
