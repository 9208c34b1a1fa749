package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/scenariotest"
)

// TestScenarios runs testdata: each file is the life of a daemon whose one pod is default/web. "go test -rewrite"
// writes the results again; read the difference before you keep it. Times are T after the start (at=T, default 0s).
//
//	pod [static=HASH] [lifecycle=L] [deleted=yes] [uid=U] [name=N]
//	                      pod.update: a PodSpec in YAML, none for the last one, or "gone"
//	computed [phase=P] [finished=yes]
//	                      status.patch: lines "CONTAINER running ID", "CONTAINER exited CODE" or "CONTAINER waiting", or "gone"
//	probe                 probe.result: lines "CONTAINER KIND ID ok|failed|gone"
//	object version=N      pod.object: a PodStatus in YAML, or "gone"
//	mirror uid=U [name=N] [version=N] [hash=H] [deleting=yes]
//	                      pod.mirror, or "gone"
//	sources               pod.sources: the UIDs of all pods that are wanted
//	node uid=U            node.object
//	decide                shows the requests for all that has changed; each waits for its answer
//	answer [version=N] [error=notfound|conflict|internal|away] [uid=U]
//	                      answers the oldest request; a patch is applied to the status that the API server has
//	merged                shows pod.status, where it has changed
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{state: newState(), said: map[string]topic.Merged{}}
		s.state.live = true
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	state   *state
	spec    corev1.PodSpec
	waiting []action
	// server is the status that the API server has.
	server corev1.PodStatus
	said   map[string]topic.Merged
	news   []string
}

// Set and Delete are the publisher's.
func (s *scenario) Set(uid string, m topic.Merged) error {
	s.said[uid] = m
	s.news = append(s.news, shownStatus(m))
	return nil
}

func (s *scenario) Delete(uid string) error {
	delete(s.said, uid)
	s.news = append(s.news, "removed")
	return nil
}

const scenarioPod = "u1"

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	args := map[string]string{}
	for _, a := range d.CmdArgs {
		args[a.Key] = a.Vals[0]
	}
	now := t0.Add(scenariotest.Duration(t, cmp.Or(args["at"], "0s")))
	switch d.Cmd {
	case "pod":
		s.pod(t, d.Input, args)
	case "computed":
		s.computed(t, d.Input, args, now)
	case "probe":
		for line := range strings.Lines(d.Input) {
			s.probe(strings.Fields(line))
		}
	case "object":
		s.object(t, d.Input, args)
	case "mirror":
		s.mirror(d.Input, args)
	case "sources":
		s.state.setSources(topic.Sources{Ready: true, Pods: strings.Fields(d.Input)})
	case "node":
		s.state.setNode(corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(args["uid"])}})
	case "decide":
		return s.decide(t, now)
	case "answer":
		return s.answer(t, args)
	case "merged":
		s.news = nil
		if errs := (merger{s.state}).say(s, now); len(errs) > 0 {
			t.Fatal(errs)
		}
		return strings.Join(s.news, "")
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func (s *scenario) pod(t *testing.T, text string, args map[string]string) {
	t.Helper()
	if text == "gone" {
		s.state.dropPod(scenarioPod)
		return
	}
	if text != "" {
		s.spec = corev1.PodSpec{}
		if err := yaml.UnmarshalStrict([]byte(text), &s.spec); err != nil {
			t.Fatal(err)
		}
	}
	uid := cmp.Or(args["uid"], scenarioPod)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(args["name"], "web"), Namespace: "default", UID: types.UID(uid)},
		Spec:       s.spec,
	}
	update := topic.Pod{
		Pod: pod, Source: topic.SourceAPI,
		Lifecycle: topic.Lifecycle(cmp.Or(args["lifecycle"], string(topic.Syncing))),
	}
	if hash := args["static"]; hash != "" {
		update.Source = topic.SourceFile
		pod.Annotations = map[string]string{annotationHash: hash}
	}
	if args["deleted"] != "" {
		at := metav1.NewTime(t0)
		pod.DeletionTimestamp = &at
	}
	s.state.setPod(uid, update)
}

func (s *scenario) computed(t *testing.T, text string, args map[string]string, now time.Time) {
	t.Helper()
	if text == "gone" {
		s.state.dropPatch(scenarioPod)
		return
	}
	patch := topic.PodStatus{
		Ref:      topic.Ref{Namespace: "default", Name: "web", UID: scenarioPod},
		Finished: args["finished"] != "",
	}
	patch.Source = topic.SourceAPI
	if p := s.state.pods[scenarioPod]; p != nil && p.update != nil {
		patch.Source = p.update.Source
	}
	patch.Status.Phase = corev1.PodPhase(cmp.Or(args["phase"], string(corev1.PodRunning)))
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		c := corev1.ContainerStatus{Name: w[0]}
		switch w[1] {
		case "running":
			c = running(w[0], w[2])
		case "exited":
			var code int32
			if _, err := fmt.Sscan(w[2], &code); err != nil {
				t.Fatal(err)
			}
			c = exited(w[0], code)
		default:
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		}
		if containerSpec(s.spec.InitContainers, c.Name) != nil {
			patch.Status.InitContainerStatuses = append(patch.Status.InitContainerStatuses, c)
		} else {
			patch.Status.ContainerStatuses = append(patch.Status.ContainerStatuses, c)
		}
	}
	s.state.setPatch(scenarioPod, patch, now)
}

func (s *scenario) probe(w []string) {
	key := topic.ProbeKey{UID: scenarioPod, Container: w[0], Kind: w[1]}.String()
	if w[3] == "gone" {
		s.state.dropProbe(key)
		return
	}
	s.state.setProbe(key, topic.Probe{ContainerID: w[2], Success: w[3] == "ok"})
}

func (s *scenario) object(t *testing.T, text string, args map[string]string) {
	t.Helper()
	if text == "gone" {
		s.state.dropObject(scenarioPod)
		return
	}
	var status corev1.PodStatus
	if err := yaml.UnmarshalStrict([]byte(text), &status); err != nil {
		t.Fatal(err)
	}
	s.server = status
	s.state.setObject(scenarioPod, topic.APIPod{ResourceVersion: args["version"], Status: status})
}

func (s *scenario) mirror(text string, args map[string]string) {
	if text == "gone" {
		s.state.dropMirror(args["uid"])
		return
	}
	s.state.setMirror(args["uid"], topic.MirrorPod{
		Ref:  topic.Ref{Namespace: "default", Name: cmp.Or(args["name"], "web"), UID: args["uid"]},
		Hash: args["hash"], Deleting: args["deleting"] != "", ResourceVersion: args["version"], Status: s.server,
	})
}

func (s *scenario) decide(t *testing.T, now time.Time) string {
	t.Helper()
	var text strings.Builder
	busy := func(key string) bool {
		return slices.ContainsFunc(s.waiting, func(a action) bool { return a.key == key })
	}
	for key := s.state.dirty.take(func(k string) bool { return !busy(k) }); key != ""; {
		a, err := s.state.decide(key, now)
		if err != nil {
			t.Fatal(err)
		}
		if a.verb != doNothing {
			s.waiting = append(s.waiting, a)
			text.WriteString(shownAction(t, a))
		}
		key = s.state.dirty.take(func(k string) bool { return !busy(k) })
	}
	return cmp.Or(text.String(), "nothing\n")
}

// answer is what the API server says to the oldest request.
func (s *scenario) answer(t *testing.T, args map[string]string) string {
	t.Helper()
	if len(s.waiting) == 0 {
		t.Fatal("no request waits for an answer")
	}
	a := s.waiting[0]
	s.waiting = s.waiting[1:]
	resource := schema.GroupResource{Resource: "pods"}
	var err error
	switch args["error"] {
	case "notfound":
		err = apierrors.NewNotFound(resource, a.Name)
	case "conflict":
		err = apierrors.NewConflict(resource, a.Name, errDown)
	case "internal":
		err = apierrors.NewInternalError(errDown)
	case "away":
		err = errDown
	}
	answered := answer{action: a, err: err}
	if err == nil && a.verb != doDelete {
		answered.pod = s.applied(t, a, args)
	}
	if again := s.state.settle(answered); again != nil {
		s.state.touch(a.key)
		return "again: " + again.Error() + "\n"
	}
	return ""
}

func (s *scenario) applied(t *testing.T, a action, args map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	if a.verb == doCreate {
		pod, s.server = a.pod.DeepCopy(), corev1.PodStatus{Phase: corev1.PodPending}
	}
	if a.verb == doPatch {
		before, err := json.Marshal(corev1.Pod{Status: s.server})
		if err != nil {
			t.Fatal(err)
		}
		after, err := strategicpatch.StrategicMergePatch(before, a.patch, corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(after, pod); err != nil {
			t.Fatal(err)
		}
		s.server = pod.Status
	}
	pod.UID, pod.ResourceVersion, pod.Status = types.UID(cmp.Or(args["uid"], a.UID)), args["version"], s.server
	return pod
}

func shownAction(t *testing.T, a action) string {
	t.Helper()
	text := fmt.Sprintf("%s: %s %s/%s", a.key, a.verb, a.Namespace, a.Name)
	if a.UID != "" {
		text += " uid=" + a.UID
	}
	if a.pod != nil {
		text += fmt.Sprintf(" mirror=%s owner=%s", a.pod.Annotations[annotationMirror], a.pod.OwnerReferences[0].UID)
	}
	if a.patch == nil {
		return text + "\n"
	}
	var patch struct {
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(a.patch, &patch); err != nil {
		t.Fatal(err)
	}
	shown, err := yaml.Marshal(patch.Status)
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n  " + strings.ReplaceAll(strings.TrimSpace(string(shown)), "\n", "\n  ") + "\n"
}

func shownStatus(m topic.Merged) string {
	text := fmt.Sprintf("version %q, %s\n", m.ResourceVersion, m.Status.Phase)
	for _, c := range m.Status.Conditions {
		text += strings.TrimRight(fmt.Sprintf("  %s=%s at %s %s %s", c.Type, c.Status, c.LastTransitionTime.Sub(t0), c.Reason,
			c.Message), " ") + "\n"
	}
	for _, c := range slices.Concat(m.Status.InitContainerStatuses, m.Status.ContainerStatuses) {
		text += fmt.Sprintf("  %s started=%t ready=%t\n", c.Name, c.Started != nil && *c.Started, c.Ready)
	}
	return text
}
