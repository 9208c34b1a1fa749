package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

// TestBadConfig starts kubelot with configurations that are wrong: it must end with one line that names the error.
func TestBadConfig(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, c := range map[string]struct{ config, want string }{
		"wrong type":   {head + "maxPods: many\n", "maxPods"},
		"out of range": {head + "healthzPort: 99999\n", "healthzPort"},
		"not YAML":     {"\x00{", "neither valid YAML"},
		"wrong kind":   {"apiVersion: v1\nkind: Pod\n", "KubeletConfiguration"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "kubelet.yaml")
			if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, bed.Program("kubelot"), "up", "--config="+file, "--run-dir="+dir,
				"--root-dir="+dir, "--cert-dir="+dir).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Errorf("it ended with %v, want an error at once", err)
			}
			if bytes.Count(out, []byte("\n")) != 1 || !strings.Contains(string(out), c.want) ||
				!strings.Contains(string(out), file) {
				t.Errorf("it says %q, want one line with %q and the file's name", out, c.want)
			}
		})
	}
}

// dial connects to the bus as a daemon, with that daemon's own key unless another file is given.
func dial(t *testing.T, daemon, keyFile string, log *slog.Logger) bus.Transport {
	t.Helper()
	if keyFile == "" {
		keyFile = bed.Bed.Path("run", "keys", daemon+".nk")
	}
	transport, err := nats.Dial(t.Context(), nats.Options{
		Socket: bed.Bed.Path("run", "bus.sock"), KeyFile: keyFile,
		Daemon: daemon, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	return transport
}

// TestGarbageOnTheBus has each daemon say what can't be decoded about a running pod, a pod that doesn't exist and the
// node, and then well-formed nonsense, one word at a time. Each reader refuses each with one line and keeps what it
// had.
func TestGarbageOnTheBus(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 2)
	before.running(2)
	running, other := before.pods[0], before.pods[1]
	kit.Eventually(t, "the crew", crewRuns)
	pids := map[string]int{}
	for _, daemon := range daemons {
		pids[daemon], _ = bed.Daemon(daemon)
	}
	transports := map[string]bus.Transport{}
	for _, daemon := range slices.Concat(daemons, []string{"stats"}) {
		if daemon != "bus" { // the server itself; it has no key
			transports[daemon] = dial(t, daemon, "", slog.New(slog.DiscardHandler))
		}
	}
	// The next tests shall find a bus that knows the truth: daemons state it again when they start.
	defer func() {
		for daemon := range transports {
			kill(t, bed, daemon)
		}
	}()

	for daemon, topics := range map[string][]bus.Topic{
		"podsync": {topic.PodUpdate, topic.PodObject, topic.PodMirror, topic.StatusPatch, topic.PodSources, topic.PodStep},
		"pleg":    {topic.PLEGEvent, topic.NodeRuntime},
		"volume":  {topic.VolumeState},
		"lease":   {topic.NodeObject},
		"probe":   {topic.ProbeResult},
		"stats":   {topic.NodeMachine},
		"status":  {},
	} {
		for _, about := range append(topics, topic.Health, topic.KubeEvent) {
			for _, garbage := range []string{"\x00\xff", `[{"uid": 7}]`, `null`, strings.Repeat("[", 100_000)} {
				if about.Name() == topic.Health.Name() && len(garbage) > 10_000 {
					refusedByTheBus(t, transports[daemon], about, daemon, garbage)
					continue
				}
				if about.PerDaemon() {
					say(t, transports[daemon], about, daemon, garbage)
					continue
				}
				for _, key := range []string{string(running.UID), "nobody", "00000000-0000-0000-0000-000000000000"} {
					say(t, transports[daemon], about, key, garbage)
				}
			}
		}
	}
	for _, n := range nonsenseAbout(running, other) {
		n.refused(t, transports[n.writer])
	}
	huge := `{"state": "unhealthy", "message": "` + strings.Repeat("x", 900_000) + `"}`
	refusedByTheBus(t, transports["pleg"], topic.Health, "pleg", huge)

	h := newHerd(t, ns, "after", 3)
	h.running(3)
	h.delete()
	h.gone()
	unchanged(t, ns, before)
	nodeReady(t, bed, corev1.ConditionTrue)
	for daemon, pid := range pids {
		if now, err := bed.Daemon(daemon); err != nil || now != pid {
			t.Errorf("%s was process %d and is %d (%v): garbage ended it", daemon, pid, now, err)
		}
	}
}

// absurd is a well-formed message that makes no sense, and how its readers must refuse it.
type absurd struct {
	writer  string
	about   bus.Topic
	key     string
	text    string
	why     string
	readers []string
}

func nonsenseAbout(running, other *corev1.Pod) []absurd {
	uid := string(running.UID)
	huge := strings.Repeat("x", 900_000)
	ref := func(rest string) string {
		return fmt.Sprintf(`{"namespace": %q, "name": %q, "uid": %q%s}`, other.Namespace, other.Name, other.UID, rest)
	}
	const anothers = "is about the pod with the UID"
	return []absurd{
		{"podsync", topic.PodUpdate, uid, `{"pod": {"metadata": ` + ref("") +
			`}, "source": "api", "lifecycle": "terminated"}`, anothers, []string{"volume", "probe", "status"}},
		{
			"podsync", topic.PodUpdate, uid, `{"source": "api", "lifecycle": "terminated"}`, "has no pod",
			[]string{"volume", "probe", "status"},
		},
		{
			"podsync", topic.PodUpdate, "nobody",
			`{"pod": {"metadata": {"uid": "nobody", "namespace": "../..", "name": "a/b"}}, "lifecycle": "syncing"}`,
			"its namespace is",
			[]string{"volume", "probe", "status"},
		},
		{
			"podsync", topic.PodUpdate, "nobody",
			`{"pod": {"metadata": {"uid": "nobody", "name": "a\u0000b"}}, "lifecycle": "syncing"}`, "control character",
			[]string{"volume", "probe", "status"},
		},
		{
			"podsync", topic.PodObject, uid, ref(`, "resourceVersion": "99999999", "status": {"phase": "Failed"}`), anothers,
			[]string{"status"},
		},
		{
			"podsync", topic.StatusPatch, uid, ref(`, "finished": true, "status": {"phase": "Failed"}`), anothers,
			[]string{"status"},
		},
		{
			"podsync", topic.StatusPatch, "nobody", `{"uid": "nobody", "status": {"message": "` + huge + `"}}`,
			"has 900000 bytes",
			[]string{"status"},
		},
		{"pleg", topic.PLEGEvent, uid, ref(`, "sandboxes": [], "containers": []`), anothers, []string{"podsync", "probe"}},
		{"pleg", topic.NodeRuntime, "", `{"name": "` + huge + `"}`, "has 900000 bytes", []string{"lease", "podsync"}},
		{"volume", topic.VolumeState, uid, ref(`, "phase": "unmounted", "volumes": {}`), anothers, []string{"podsync"}},
		{"probe", topic.ProbeResult, uid, `{"success": false}`, "names no container", []string{"podsync", "status"}},
		{"lease", topic.NodeObject, "", `{}`, "is empty", []string{"podsync", "probe", "status", "volume"}},
		{
			"lease", topic.NodeObject, "",
			`{"metadata": {"name": "testbed"}, "status": {"allocatable": {"cpu": "-4", "pods": "110"}}}`, "it has -4 of",
			[]string{"podsync", "probe", "status", "volume"},
		},
		{"stats", topic.NodeMachine, "", `{"numCores": -2, "memoryBytes": 1073741824}`, "it has -2 cores", []string{"lease"}},
		{"stats", topic.NodeMachine, "", `{"numCores": 2, "memoryBytes": -1}`, "memoryBytes", []string{"lease"}},
		{
			"stats", topic.NodeMachine, "", `{"numCores": 2, "memoryBytes": 1073741824, "machineID": "a\u0000b"}`,
			"control character",
			[]string{"lease"},
		},
		{"podsync", topic.Health, "podsync", `{}`, "has no state", []string{"lease"}},
		{
			"pleg", topic.KubeEvent, "pleg", `{"kind": "Pod", "name": "` + huge + `", "reason": "Because"}`,
			"has 900000 characters",
			[]string{"status"},
		},
		{"probe", topic.KubeEvent, "probe", `{}`, "lacks a kind, a name or a reason", []string{"status"}},
	}
}

// refused says it and waits until each reader has refused it, in one short line.
func (a absurd) refused(t *testing.T, writer bus.Transport) {
	t.Helper()
	log := newJournal(t, bed)
	say(t, writer, a.about, a.key, a.text)
	for _, reader := range a.readers {
		log.says(t, reader, "ignoring an invalid ", "subject="+a.about.Name(), a.why)
		if lines := log.lines(t, reader, "subject="+a.about.Name(), a.why); len(lines) != 1 || len(lines[0]) > 1000 {
			t.Errorf("%s refuses %s in %d lines, the first of %d bytes", reader, a.about.Name(), len(lines), len(lines[0]))
		}
	}
}

// refusedByTheBus has a daemon say more of itself than the bus has room for.
func refusedByTheBus(t *testing.T, transport bus.Transport, about bus.Topic, daemon, text string) {
	t.Helper()
	subject := bus.Key(about.Name(), daemon)
	kit.Eventually(t, "the bus to refuse "+subject, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := transport.Publish(ctx, bus.Message{Subject: subject, Data: []byte(text)})
		if errors.Is(err, bus.ErrTooLarge) {
			return nil
		}
		return fmt.Errorf("the bus answered %w", err)
	})
}

func say(t *testing.T, transport bus.Transport, about bus.Topic, key, text string) {
	t.Helper()
	subject := about.Name()
	if about.Keys() != "" {
		// A probe's key has the names of a container and of a kind too.
		subject = bus.Key(subject, key) + strings.Repeat(".main", strings.Count(about.Keys(), "."))
	}
	// Once: a message that is published again because its ack was late is there twice.
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	if err := transport.Publish(ctx, bus.Message{
		Subject: subject, Header: map[string]string{bus.HeaderSchema: "1"}, Data: []byte(text),
	}); err != nil {
		t.Fatalf("the bus doesn't take %s: %v", subject, err)
	}
}

// TestWrongKey connects to the bus with a key that isn't its, and with one that may not do what it tries.
func TestWrongKey(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.nk")
	seed := "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY" // the well-known example of the nkeys project
	if err := os.WriteFile(other, []byte(seed), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stranger := dial(t, "podsync", other, slog.New(slog.NewTextHandler(log, nil)))
	told := func() string { return proc.Tail(path, 1<<16) }
	kit.Eventually(t, "the stranger to be refused", func() error {
		if text := told(); !strings.Contains(text, "the key is not the one") {
			return fmt.Errorf("it is told %q", text)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := stranger.Publish(ctx, bus.Message{
		Subject: bus.Key(topic.PodUpdate.Name(), "nobody"),
		Data:    []byte("{}"),
	}); err == nil {
		t.Error("a stranger may publish")
	}
	stranger.Close()
	// The bus may hang up before its reason was read; then the reason is a second line. On a busy machine a connection
	// that takes too long is told too, and the reason once more after it.
	if late, lines := strings.Count(told(), "timeout"), strings.Count(told(), "\n"); lines > 2+2*late {
		t.Errorf("a stranger is told, in %d lines: %s", lines, told())
	}

	pleg := dial(t, "pleg", "", slog.New(slog.DiscardHandler))
	kit.Eventually(t, "a refusal", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := pleg.Publish(ctx, bus.Message{Subject: bus.Key(topic.PodUpdate.Name(), "nobody"), Data: []byte("{}")})
		if err == nil || !strings.Contains(err.Error(), bus.ErrDenied.Error()) {
			return errors.Join(errors.New("pleg's pod.update isn't refused"), err)
		}
		return nil
	})
}

// TestNothingThereAtStart starts the crew while neither the API server nor the runtime can be reached.
func TestNothingThereAtStart(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 3)
	before.running(3)

	bed.Node.Stop()
	bed.ControlPlane.StopAPIServer()
	bed.CRI.Stop()
	log := newJournal(t, bed)
	launched := make(chan error, 1)
	go func() { launched <- bed.Node.Launch(t.Context()) }()
	log.says(t, "pleg", "containerd.sock")
	log.says(t, "lease", "refused")
	startAPIServer(t)
	launchContainerd(t)
	if err := <-launched; err != nil {
		t.Fatal(err)
	}
	h := newHerd(t, ns, "after", 3)
	h.running(3)
	unchanged(t, ns, before)
}
