package ui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// restless ends once, and then runs; victim runs until it is evicted.
const restless = `apiVersion: v1
kind: Pod
metadata: {name: restless}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "[ -e /data/once ] || { touch /data/once; sleep 1; exit 7; }; $FOREVER"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "$FOREVER"]}]
`

// The day shows what a real node went through: a container that was started again, pressure, and who was evicted.
// Static pods aren't evicted, so the node has an API server.
func TestTheDayOfANode(t *testing.T) {
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	b := browse(t, serve(t, own.Node.RunDir()), 1280, 900)
	b.goTo("#/day")
	b.shows("The bus's history begins")
	ns := own.Namespace(t)
	ns.Apply(strings.ReplaceAll(restless, "$FOREVER", "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"))
	ns.Running("victim")
	ns.Wait("restless", "one restart", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount == 1 && s.State.Running != nil
	})
	happened := func(kind, what string) {
		t.Helper()
		b.until(what+" in the list", fmt.Sprintf(`[...document.querySelectorAll("#happenings li")].some((e) =>
			e.querySelector(".kind").innerText === %q && e.innerText.includes(%q))`, kind, what))
	}
	happened("restart", "container app of "+ns.Name+"/restless was started again: it had ended with 7")
	relieve := own.LackMemory(t)
	ns.Phase("victim", corev1.PodFailed)
	happened("pressure", "memory pressure")
	happened("eviction", "evicted "+ns.Name+"/victim: ")
	b.until("the signal that is under its threshold", `[...document.querySelectorAll("#signals .signal.under")].some((e) =>
		e.innerText.includes("memory.available"))`)
	ns.Phase("restless", corev1.PodFailed) // nobody is evicted any more
	relieve()
	happened("pressure", "no pressure any more")

	// A try to evict that a busy node answers late is made again, and is one more.
	counts := get[string](b, `document.querySelector("#lanes").getAttribute("aria-label")`)
	if !regexp.MustCompile(`: Pressure 2, Evictions [2-9], Restarts 1, `).MatchString(counts) {
		t.Errorf("the lanes are of %q", counts)
	}
	if words := get[string](b, `document.querySelector("#day-words").innerText`); !regexp.MustCompile(
		`: [2-9] evictions, 1 restart, 2 pressure changes\.$`).MatchString(words) {
		t.Errorf("the day is summed up as %q", words)
	}
	// Each stands in its lane, and the pressure as what lasts.
	marks := get[[]int](b, `[...document.querySelectorAll("#lanes .lane")].slice(0, 3).flatMap((e) =>
		[e.querySelectorAll(".track i.bad").length, e.querySelectorAll(".track b").length])`)
	if !slices.Equal(slices.Concat(marks[:2], marks[3:]), []int{1, 1, 0, 1, 0}) || marks[2] < 2 {
		t.Errorf("marks and spans of pressure, evictions and restarts: %v", marks)
	}
	// Figures of a real node are long.
	if wide := get[[]string](b, `[...document.querySelectorAll("#signals p")].filter((e) => e.scrollWidth > e.clientWidth)
		.map((e) => e.innerText)`); len(wide) > 0 {
		t.Errorf("wider than their cards: %q", wide)
	}
	b.inEachTheme(t, func(theme string) {
		b.readable("a node's day, " + theme)
		b.picture("day-real-" + theme)
	})
}
