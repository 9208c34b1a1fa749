package gc

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/test/e2e/kit"
)

// late begins what a message has where the figures that the choice waits for have come too late, as on a busy machine.
// The right pods go nevertheless.
const late = "Figures from after the shortage began were missing after "

var lowMessage = regexp.MustCompile(
	`^The node was low on resource: (\S+)\. Threshold quantity: (\S+), available: (\S+)\. (.*)$`)

// low waits until the pod was evicted because the node was low on the resource, and checks the figures of its message:
// the threshold is as configured and what was available is less, and less than there can have been at an earlier
// moment. It returns what comes after them.
func low(t *testing.T, ns *kit.Namespace, name, resourceName, threshold, below string) string {
	t.Helper()
	p := evicted(t, ns, name, "The node was low on resource: "+resourceName+". Threshold quantity: "+threshold+
		", available: ", true)
	words := lowMessage.FindStringSubmatch(p.Status.Message)
	if words == nil {
		t.Fatalf("pod %s: message %q", name, p.Status.Message)
	}
	available, err := resource.ParseQuantity(words[3])
	if most := resource.MustParse(below); err != nil || available.Cmp(most) >= 0 {
		t.Errorf("pod %s: message %q, %v; want less than %s available", name, p.Status.Message, err, below)
	}
	if a := ns.Event(name, "Evicted", p.Status.Message).Annotations; a["starved_resource"] != resourceName {
		t.Errorf("pod %s: the Event's annotations are %v", name, a)
	}
	kit.Eventually(t, "Event EvictionThresholdMet", func() error {
		return nodeEvent(t, ns.Bed(), "EvictionThresholdMet", "Attempting to reclaim "+resourceName)
	})
	return words[4]
}

// crossing tells when the node has become short, from a look each 5 ms. A look that fails is none.
func crossing(t *testing.T, short func() (bool, error)) (crossed func() time.Time) {
	t.Helper()
	at := make(chan time.Time, 1)
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			if is, err := short(); err == nil && is {
				at <- time.Now()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() time.Time {
		t.Helper()
		select {
		case moment := <-at:
			return moment
		case <-time.After(kit.Patience):
			t.Fatal("the node has not become short")
			return time.Time{}
		}
	}
}

// action is what gc has done by its log.
type action struct {
	at           time.Time
	kind, object string
}

var actionLine = regexp.MustCompile(`time=(\S+) .*msg=decided .*action=("[^"]*"|\S+) object=(\S+)`)

// actions are gc's actions so far, in their order.
func actions(t *testing.T, bed *kit.Bed) []action {
	t.Helper()
	f, err := os.Open(bed.Node.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []action
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := actionLine.FindStringSubmatch(lines.Text())
		if words == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, words[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, action{at: at, kind: strings.Trim(words[2], `"`), object: words[3]})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// evictions are the names of the pods that gc has evicted, in their order.
func evictions(t *testing.T, bed *kit.Bed) []string {
	t.Helper()
	var names []string
	for _, a := range actions(t, bed) {
		if a.kind == "evict pod" {
			names = append(names, path.Base(a.object))
		}
	}
	return names
}

// took logs how long after the crossing a pod was evicted. gc's own tests hold it, since what else the machine does
// counts here.
func took(t *testing.T, bed *kit.Bed, name string, crossed time.Time) {
	t.Helper()
	for _, a := range actions(t, bed) {
		if a.kind == "evict pod" && path.Base(a.object) == name {
			t.Logf("%s was evicted %s after the threshold was crossed", name, a.at.Sub(crossed).Round(time.Millisecond))
		}
	}
}

// relieved waits until the node has had the condition, and has it no more.
func relieved(t *testing.T, bed *kit.Bed, since *corev1.Node, kind corev1.NodeConditionType) {
	t.Helper()
	pressed := condition(t, bed, since, kind, corev1.ConditionTrue)
	for _, c := range pressed.Status.Conditions {
		if c.Type == kind && !strings.HasPrefix(c.Reason, "KubeletHas") {
			t.Errorf("condition %+v", c)
		}
	}
	condition(t, bed, pressed, kind, corev1.ConditionFalse)
}

// trigger makes the first container of the pod do what it waits for.
func trigger(ns *kit.Namespace, p *corev1.Pod, command string) {
	ns.Exec(p, p.Spec.Containers[0].Name, fmt.Sprintf("(%s) >/dev/null 2>&1 &", command))
}
