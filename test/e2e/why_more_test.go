package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// asks is what kubelot why says with these arguments, once it has an answer.
func asks(t *testing.T, args ...string) (out string) {
	t.Helper()
	kit.Eventually(t, "kubelot why "+strings.Join(args, " "), func() (err error) {
		if out, err = bed.Why(t.Context(), args...); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
	return out
}

// The node answers for itself, and names the pods that it has refused.
func TestWhyNode(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("large", onThisNode+container(`resources: {requests: {cpu: "1000"}}`, "")))
	ns.Phase("large", corev1.PodFailed)
	var answer struct {
		Name    string `json:"name"`
		Ready   bool   `json:"ready"`
		Evicted []struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Sentence  string `json:"sentence"`
		} `json:"evicted"`
	}
	kit.Eventually(t, "the node's answer", func() error {
		return json.Unmarshal([]byte(asks(t, "node", "-o", "json")), &answer)
	})
	if answer.Name != kit.NodeName || !answer.Ready {
		t.Errorf("the answer is %+v", answer)
	}
	named := false
	for _, e := range answer.Evicted {
		if e.Namespace == ns.Name && e.Name == "large" {
			named = true
			if !strings.Contains(e.Sentence, "this node hasn't enough cpu") {
				t.Errorf("pod large: %q", e.Sentence)
			}
		}
	}
	if !named {
		t.Errorf("pod large isn't among %+v", answer.Evicted)
	}
	if text := asks(t, "node"); !strings.Contains(text, " is ready (Ready is True: KubeletReady") ||
		!strings.Contains(text, ns.Name+"/large: this node hasn't enough cpu") {
		t.Errorf("the text is:\n%s", text)
	}
}

// A pod that was stuck once is explained afterwards.
func TestWhyEarlier(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("late", container("volumeMounts: [{name: v, mountPath: /v}]",
		"  volumes: [{name: v, configMap: {name: settings}}]\n")))
	says(t, ns, "late", `the ConfigMap "settings" doesn't exist`)
	then := time.Now()
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n")
	ns.Running("late")
	says(t, ns, "late", "is ready: 1 container ready")
	at := then.Format(time.RFC3339Nano)
	if text := asks(t, ns.Name+"/late", "--at", at); !strings.Contains(text, `the ConfigMap "settings" doesn't exist`) ||
		!strings.Contains(text, "is waiting: 0 of 1 container ready") {
		t.Errorf("at %s it says:\n%s", at, text)
	}
	if _, stderr, code := kubelot(t, "", "why", ns.Name+"/late", "--at", "1000h"); code != 1 ||
		!strings.Contains(stderr, "the bus's history begins ") {
		t.Errorf("long before: exit code %d\n%s", code, stderr)
	}
	var answer struct {
		State    string `json:"state"`
		Sentence string `json:"sentence"`
		Causes   []struct {
			Kind     string `json:"kind"`
			Sentence string `json:"sentence"`
		} `json:"causes"`
	}
	if err := json.Unmarshal([]byte(asks(t, ns.Name+"/late", "-o", "json", "--at", at)),
		&answer); err != nil || answer.State != "waiting" || len(answer.Causes) == 0 ||
		answer.Causes[0].Kind != "volume-configmap-missing" || answer.Sentence != answer.Causes[0].Sentence {
		t.Errorf("%+v, %v", answer, err)
	}
}
