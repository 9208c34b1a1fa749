package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/release"
)

// goal is the most time that it may take after a part's return until all is as wanted. The time that the machine needs
// for the same pods when nothing happens comes on top.
const goal = 5 * time.Second

// TestMatrix is the table. MATRIX=full takes the times of the requirement, 30 pods, and holds the goal of convergence;
// by default the times are short, as a machine that does other things needs.
func TestMatrix(t *testing.T) {
	r := start(t)
	size := 6
	if r.isFull {
		size = 30
	}
	r.settle(t, size)
	for _, part := range parts {
		t.Run(part, func(t *testing.T) {
			for _, a := range actions {
				t.Run(string(a), func(t *testing.T) { r.cell(t, part, a) })
			}
		})
	}
}

// start runs the bed with links that can be moved.
func start(t *testing.T) *rig {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &rig{times: short, links: filepath.Join(dir, "bin"), idle: filepath.Join(dir, "idle")}
	if os.Getenv("MATRIX") == "full" {
		r.times, r.isFull = full, true
	}
	if text := os.Getenv("MATRIX_AWAY"); text != "" {
		r.times.Away, err = time.ParseDuration(text)
		r.must(t, err)
	}
	r.must(t, errors.Join(os.Mkdir(r.links, 0o755), os.WriteFile(r.idle, []byte(idle), 0o755)))
	now := os.Getenv("KUBELOT_BIN")
	if now == "" {
		now = filepath.Join(root, ".bin")
	}
	for _, name := range daemons {
		r.must(t, os.Symlink(filepath.Join(now, "kubelot-"+name), filepath.Join(r.links, "kubelot-"+name)))
	}
	last, err := release.Last(root)
	r.must(t, err)
	r.lastName = last.Version
	if r.last, err = release.Build(t.Context(), root, last); err != nil && !errors.Is(err, release.ErrNotHere) {
		t.Fatal(err)
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "SKIPPED: the column %q: %v\n", version, err)
		r.last = ""
	}
	r.bed = kit.StartWithoutNode(t)
	r.must(t, r.bed.StartNode(t.Context(), "kubelot", "--bin-dir="+r.links))
	r.bed.NotCompact(t, "the parts are processes of their own")
	r.ns = r.bed.Namespace(t)
	return r
}

// cell performs one action on one part and checks what must hold.
func (r *rig) cell(t *testing.T, part string, a action) {
	if reason := missing(part, a); reason != "" {
		r.record(t, cell{Part: part, Action: a, Note: reason})
		t.Skip(reason)
	}
	if a == version && r.last == "" {
		t.Skip("the checkout lacks the last release's commit")
	}
	if a == version && slices.Contains(daemons, part) && !r.hadLast(part) {
		reason := r.lastName + " has no kubelot-" + part
		r.record(t, cell{Part: part, Action: a, Note: reason})
		t.Skip(reason)
	}
	defer func(ns *kit.Namespace) { r.ns = ns }(r.ns)
	r.ns = r.ns.In(t)
	turns, ends := Allows(part, string(a), r.times)
	converge := r.comings(t)
	s := r.ns.Talk(t)
	o, err := Observe(t.Context(), Observed{
		Client: r.bed.Client, Node: kit.NodeName, Namespace: r.ns.Name, Living: len(r.steady),
		Passing: []string{"comes-", "leaves-"},
	})
	r.must(t, err)
	if part == apiserver || a == kill || a == restart {
		r.meanwhile()
	}
	r.do(t, part, a)
	took := converge()
	if ends == "" {
		s.GoesOn()
	} else {
		s.Close()
		r.ns.Talk(t).Close() // a new one works
	}
	r.nodeIsReady(t)
	if err := o.Check(t.Context(), part, string(a), r.times); err != nil {
		t.Error(err)
	}
	for _, was := range r.steady {
		r.unchanged(t, was, turns != "")
	}
	limit := goal + 2*r.alone
	t.Logf("all was as wanted %s after the return; %s is the limit", took.Round(time.Millisecond), limit)
	if took > limit && r.isFull {
		t.Errorf("it took %s until all was as wanted, and must take at most %s and twice the %s that the machine "+
			"needs anyway",
			took, goal, r.alone)
	}
	r.record(t, cell{
		Part: part, Action: a, Converged: took.Milliseconds(), Limit: limit.Milliseconds(), Full: r.isFull,
		Note: note(turns, ends),
	})
}

func note(turns, ends string) string {
	switch {
	case turns != "" && ends != "":
		return "the node is not Ready meanwhile (" + turns + "); sessions end (" + ends + ")"
	case turns != "":
		return "the node is not Ready meanwhile (" + turns + ")"
	case ends != "":
		return "sessions end (" + ends + ")"
	}
	return ""
}

func (r *rig) nodeIsReady(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "a Ready node", func() error {
		for _, c := range r.bed.KubeNode(t).Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return nil
	})
}

// unchanged checks that a pod runs in the same containers and was Ready all the time.
func (r *rig) unchanged(t *testing.T, was *corev1.Pod, mayTurn bool) {
	t.Helper()
	is := r.ns.Running(was.Name)
	for _, a := range slices.Concat(was.Status.InitContainerStatuses, was.Status.ContainerStatuses) {
		b := kit.Status(is, a.Name)
		if b == nil || a.ContainerID != b.ContainerID || b.RestartCount != 0 {
			t.Errorf("pod %s: %s was %+v and is %+v", was.Name, a.Name, a, b)
		}
	}
	since := func(p *corev1.Pod) string {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		return p.Status.Conditions[i].LastTransitionTime.String()
	}
	if !mayTurn && since(was) != since(is) {
		t.Errorf("pod %s was Ready since %s and is since %s", was.Name, since(was), since(is))
	}
	*was = *is
}

// record appends what a cell showed to the file that RESULTS names.
func (r *rig) record(t *testing.T, c cell) {
	t.Helper()
	path := os.Getenv("RESULTS")
	if path == "" || t.Failed() {
		return
	}
	line, err := json.Marshal(c)
	r.must(t, err)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	r.must(t, err)
	_, err = file.Write(append(line, '\n'))
	r.must(t, errors.Join(err, file.Close()))
}
