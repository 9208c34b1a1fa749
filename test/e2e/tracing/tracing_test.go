package tracing

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// bed and collected are shared by all tests. They run one after the other.
var (
	bed       *kit.Bed
	collected collector
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := collected.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// containerd takes its configuration of traces from the environment.
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://" + collected.address, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
		"OTEL_SERVICE_NAME": "containerd",
	} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return kit.Main(m, &bed, kit.Options{Config: fmt.Sprintf(tracing, collected.address, 1_000_000)})
}

const (
	tracing = "tracing: {endpoint: %q, samplingRatePerMillion: %d}\n"
	forever = `[sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']`
)

// pod makes a manifest: what every test's pod has, and the rest of its spec as indented YAML. $FOREVER is replaced.
func pod(name, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  terminationGracePeriodSeconds: 5\n" +
		strings.ReplaceAll(spec, "$FOREVER", forever)
}

const plain = "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"

// life has a pod start and go, and returns it with the spans of its trace once the last one is there.
func life(t *testing.T, ns *kit.Namespace, name string) (*corev1.Pod, []span) {
	t.Helper()
	p := ns.Wait(name, "ready", kit.Ready)
	ns.Delete(name, -1)
	ns.Gone(p)
	var spans []span
	kit.Eventually(t, "the whole trace", func() error {
		spans = collected.of(string(p.UID))
		_, err := one(spans, "pod end", "")
		if err == nil {
			_, err = one(spans, "remove sandboxes", "")
		}
		return err
	})
	return p, spans
}

// A pod's life is one trace, whose ID is its UID. The spans of containerd are below those of the steps that called it.
func TestAPodsTrace(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\n" + pod("web", `  volumes:
  - {name: settings, configMap: {name: settings}}
  containers:
  - name: app
    image: "busybox:1.36"
    command: $FOREVER
    volumeMounts: [{name: settings, mountPath: /settings}]
    lifecycle: {postStart: {exec: {command: [sleep, "0.3"]}}}
`))
	p, spans := life(t, ns, "web")
	get := func(name, container string) span {
		t.Helper()
		s, err := one(spans, name, container)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	root, end := get("pod", ""), get("pod end", "")
	sandbox, image := get("create sandbox", ""), get("ensure image", "app")
	start, hook := get("start container", "app"), get("run postStart hook", "app")
	stop, remove := get("stop container", "app"), get("remove sandboxes", "")
	for child, parent := range map[*span]span{
		&end: root, &sandbox: root, &image: root, &start: root, &hook: start, &stop: end, &remove: end,
	} {
		if child.parent != parent.id {
			t.Errorf("%s is below %s, want %s", child, child.parent, parent)
		}
	}
	// The pod's creation has no fractions of a second.
	created := p.CreationTimestamp.Time
	if root.parent != "" || root.begin.Before(created) || root.begin.After(created.Add(kit.Patience)) {
		t.Errorf("the root is %s, and the pod was created at %s", root, created)
	}
	for _, s := range []span{sandbox, image, start, hook} {
		if s.begin.Before(root.begin) || s.end.After(root.end) || !s.end.After(s.begin) {
			t.Errorf("%s isn't within %s", s, root)
		}
	}
	if hook.end.Sub(hook.begin) < 300*time.Millisecond || hook.begin.Before(start.begin) || hook.end.After(start.end) {
		t.Errorf("the hook took 0.3 s of the start, and its span is %s, that of the start %s", hook, start)
	}
	if sandbox.end.After(start.begin) || root.end.After(end.begin) || stop.begin.Before(end.begin) ||
		stop.end.After(end.end) {
		t.Errorf("the order isn't that of a pod's life:\n%s", list(spans))
	}
	for _, s := range spans {
		if s.service == "kubelet" && (s.attributes["k8s.pod.uid"] != string(p.UID) || s.attributes["k8s.pod.name"] != "web" ||
			s.attributes["k8s.namespace.name"] != ns.Name || s.failure != "") {
			t.Errorf("%s isn't of pod %s/%s", s, ns.Name, p.UID)
		}
	}
	if image.attributes["container.image.name"] != "busybox:1.36" {
		t.Errorf("the image isn't told: %s", image)
	}
	kit.Eventually(t, "containerd's spans below those of the steps", func() error {
		spans := collected.of(string(p.UID))
		for _, step := range []span{sandbox, start, stop} {
			if !slices.ContainsFunc(spans, func(s span) bool { return s.service == "containerd" && s.parent == step.id }) {
				return fmt.Errorf("none below %s among\n%s", step, list(spans))
			}
		}
		return nil
	})
	if testing.Verbose() {
		t.Logf("the trace:\n%s", list(collected.of(string(p.UID))))
	}
}

// An image that isn't there makes spans with the error, and a root that has failed.
func TestAnImageThatIsNot(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(pod("web", "  containers: [{name: app, image: \"127.0.0.1:1/none:1\", command: $FOREVER}]\n"))
	p := ns.Wait("web", "a failed pull", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "ImagePull")
	})
	failed := func(name string) func() error {
		return func() error {
			spans := collected.of(string(p.UID))
			if !slices.ContainsFunc(spans, func(s span) bool {
				return s.service == "kubelet" && s.name == name && s.failure != ""
			}) {
				return fmt.Errorf("no span %q has failed among\n%s", name, list(spans))
			}
			return nil
		}
	}
	kit.Eventually(t, "a span of the failed pull", failed("ensure image"))
	if _, err := one(collected.of(string(p.UID)), "pod", ""); err == nil {
		t.Error("the pod isn't Ready, and its start is over")
	}
	ns.Delete("web", -1)
	ns.Gone(p)
	kit.Eventually(t, "the failed start", failed("pod"))
}

// While the collector is away pods start as ever. When it is back it gets what it has missed, and the log has a line of
// either.
func TestTheCollectorIsRestarted(t *testing.T) {
	ns := bed.Namespace(t)
	away, back := logged("the collector of traces doesn't take spans"), logged("the collector of traces takes spans again")
	if err := collected.stop(); err != nil {
		t.Fatal(err)
	}
	const pods = 6
	var manifests []string
	for i := range pods {
		manifests = append(manifests, pod(fmt.Sprint("web", i), plain))
	}
	ns.Apply(strings.Join(manifests, "---\n"))
	var started []*corev1.Pod
	for i := range pods {
		started = append(started, ns.Wait(fmt.Sprint("web", i), "ready", kit.Ready))
	}
	kit.Eventually(t, "a line in the log", away)
	kit.Eventually(t, "the collector's port", collected.start)
	for _, p := range started {
		kit.Eventually(t, "the trace of "+p.Name, func() error { return begun(p) })
	}
	kit.Eventually(t, "a line in the log", back)
}

// begun is an error unless the collector has the spans of the pod's start.
func begun(p *corev1.Pod) error {
	for name, container := range map[string]string{"pod": "", "create sandbox": "", "start container": "app"} {
		if _, err := one(collected.of(string(p.UID)), name, container); err != nil {
			return err
		}
	}
	return nil
}

// logged returns what is an error unless kubelot's log has exactly one such line more than now.
func logged(text string) func() error {
	count := func() (int, error) {
		log, err := os.ReadFile(bed.Node.LogPath())
		return strings.Count(string(log), text), err
	}
	before, failed := count()
	return func() error {
		n, err := count()
		if err = errors.Join(failed, err); err == nil && n != before+1 {
			err = fmt.Errorf("%q is there %d times, and was %d times", text, n, before)
		}
		return err
	}
}

// sentByAPI finds how many spans api knows the collector to have, since its start.
var sentByAPI = regexp.MustCompile(`(?m)^kubelot_trace_spans_total\{result="sent"\} (\d+)$`)

// unconfirmed is how many spans the collector has besides those that api knows it to have: those of an earlier process
// of it, and those of which it is about to learn.
func unconfirmed(t *testing.T) int {
	t.Helper()
	page := bed.Page(t, "api", "/metrics")
	sent := sentByAPI.FindSubmatch(page)
	if sent == nil {
		t.Fatalf("no count of spans in\n%s", page)
	}
	known, err := strconv.Atoi(string(sent[1]))
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, s := range collected.all() {
		if s.service == "kubelet" {
			all++
		}
	}
	return all - known
}

// api is restarted while a pod lives: its trace is whole, and no span is sent twice, of this pod or of any other.
func TestAPIIsRestarted(t *testing.T) {
	ns := bed.Namespace(t)
	before := unconfirmed(t)
	ns.Apply(pod("web", plain))
	p := ns.Wait("web", "ready", kit.Ready)
	// What api has queued it sends within a second of its end, or not at all; of what it sends just then it can't know
	// that it has arrived.
	kit.Eventually(t, "the pod's start", func() error { return begun(p) })
	kit.Eventually(t, "api to know what the collector has", func() error {
		if n := unconfirmed(t); n > before {
			return fmt.Errorf("it doesn't know of %d spans, and didn't of %d before", n, before)
		}
		return nil
	})
	bed.Signal(t, "api", syscall.SIGTERM)
	ns.Apply(pod("next", plain))
	_, spans := life(t, ns, "next")
	if _, err := one(spans, "create sandbox", ""); err != nil {
		t.Error(err)
	}
	p, spans = life(t, ns, "web")
	for _, name := range []string{"pod", "create sandbox", "stop sandbox"} {
		if _, err := one(spans, name, ""); err != nil {
			t.Errorf("pod %s: %v", p.UID, err)
		}
	}
	seen := map[string]span{}
	for _, s := range collected.all() {
		key := s.trace + s.id
		if before, twice := seen[key]; twice && s.service == "kubelet" {
			t.Errorf("sent twice:\n%s\n%s", before, s)
		}
		seen[key] = s
	}
}

// TestOff is the last one: it runs kubelot without traces.
func TestOff(t *testing.T) {
	if bed.Compact() {
		t.Skip("the crew's end is tested in the other layout")
	}
	bed.Node.Stop()
	file := bed.Node.ConfigFile()
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	on, off := fmt.Sprintf(tracing, collected.address, 1_000_000), fmt.Sprintf(tracing, collected.address, 0)
	if err := os.WriteFile(file, []byte(strings.Replace(string(config), on, off, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bed.Node.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(pod("web", plain))
	p := ns.Wait("web", "ready", kit.Ready)
	ns.Delete("web", -1)
	ns.Gone(p)
	// The next spans of containerd show that it has sent those of the pod, too.
	n := len(collected.all())
	kit.Eventually(t, "later spans of containerd", func() error {
		if len(collected.all()) == n {
			return fmt.Errorf("%d spans", n)
		}
		return nil
	})
	if spans := collected.of(string(p.UID)); len(spans) > 0 {
		t.Errorf("nothing is traced, and there are spans:\n%s", list(spans))
	}
	if strings.Contains(metrics(t, ns, ""), "trace_id=") {
		t.Error("nothing is traced, and there are exemplars")
	}
}
