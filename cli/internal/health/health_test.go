package health

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// well is what a daemon says that is well.
func well() topic.DaemonHealth {
	return topic.DaemonHealth{State: topic.Healthy, Since: now.Add(-time.Hour), Beat: now, Version: "v1", PID: 7}
}

// crew is a whole crew that is well, with one daemon in another state.
func crew(name string, h topic.DaemonHealth) map[string]topic.DaemonHealth {
	healths := map[string]topic.DaemonHealth{}
	for i, v := range slices.Concat(vital, spare) {
		h := well()
		h.PID += i
		healths[v] = h
	}
	healths[name] = h
	return healths
}

func TestCrewNamesTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		daemon string
		health topic.DaemonHealth
		pid    int
		kind   Kind
		cause  string
		advice string
	}{
		"told to stop": {
			"gc",
			topic.DaemonHealth{State: topic.Stopped, Beat: now.Add(-time.Hour)},
			0,
			Daemon, "it was told to stop", "systemctl start kubelot-gc",
		},
		"ended by an error": {
			"gc",
			topic.DaemonHealth{State: topic.Stopped, Message: "open x: no space left on device"},
			0,
			Daemon, "because of an error: a disk is full", "systemctl restart kubelot-gc",
		},
		"killed": {
			"status",
			topic.DaemonHealth{State: topic.Healthy, Beat: now.Add(-2 * time.Minute)},
			0,
			Daemon, "its process is gone", "journalctl -k",
		},
		"hangs": {
			"status",
			topic.DaemonHealth{State: topic.Healthy, Beat: now.Add(-2 * time.Minute)},
			42,
			Daemon, "its process 42 is there", "systemctl restart kubelot-status",
		},
		"killed while it slept": {
			"resource",
			topic.DaemonHealth{State: topic.Healthy, Asleep: true, Message: "asleep: x", Beat: now.Add(-time.Hour)},
			0,
			Daemon, "its process is gone", "systemctl start kubelot-resource",
		},
		"degraded": {
			"volume",
			topic.DaemonHealth{State: topic.Degraded, Message: "3 volumes hang on filesystems", Beat: now},
			1,
			Degraded, "network filesystem", "volume.state",
		},
		"unhealthy": {
			"pleg",
			topic.DaemonHealth{State: topic.Unhealthy, Message: "rpc error: code = Unavailable", Beat: now},
			1,
			Daemon, "the container runtime isn't there", "systemctl status containerd",
		},
		"says nothing": {
			"pleg",
			topic.DaemonHealth{State: topic.Unhealthy, Beat: now},
			1,
			Daemon, "the daemon doesn't say", "journalctl -u kubelot-pleg",
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Crew(crew(c.daemon, c.health), map[string]int{c.daemon: c.pid}, now)
			bad := 0
			for _, f := range findings {
				if f.OK {
					continue
				}
				bad++
				if f.Name != c.daemon || f.Kind != c.kind || !strings.Contains(f.Cause, c.cause) ||
					!strings.Contains(f.Advice, c.advice) {
					t.Errorf("%+v", f)
				}
			}
			if bad != 1 {
				t.Errorf("%d are bad, want one of %+v", bad, findings)
			}
		})
	}
}

// A vital daemon that was never started says nothing, and nobody else speaks for it.
func TestCrewMissesVitalDaemons(t *testing.T) {
	healths := crew("lease", well())
	delete(healths, "podsync")
	for pid, cause := range map[int]string{0: "never started", 9: "its process 9 is there"} {
		findings := Crew(healths, map[string]int{"podsync": pid}, now)
		text := Text(findings, paint.Painter{})
		if !slices.Equal(Tally(findings), []Count{{Daemon, 1}}) || !strings.Contains(text, cause) {
			t.Errorf("process %d:\n%s", pid, text)
		}
	}
	delete(healths, "resource")
	if bad := Tally(Crew(healths, nil, now)); !slices.Equal(bad, []Count{{Daemon, 1}, {Degraded, 1}}) {
		t.Errorf("without podsync and resource, %v are bad", bad)
	}
	if bad := Tally(Crew(crew("lease", well()), nil, now)); bad != nil {
		t.Errorf("of a whole crew, %v are bad", bad)
	}
}

// What the daemons' code says of itself, word for word, and the cause.
func TestExplain(t *testing.T) {
	for _, c := range []struct{ daemon, message, cause, advice string }{
		{"lease", "CertificateSigningRequest node-csr-x waits to be approved and signed", "approved", "approve node-csr-x"},
		{"lease", "there is no valid client certificate in a or b: give", "missing or has expired", "kubeadm token"},
		{"lease", "requesting a client certificate with bootstrap f", "about to get", "kubectl get csr"},
		{"lease", "the Node was deleted at the API server", "somebody has deleted", "kubectl get node"},
		{"lease", "Get: dial tcp 1.2.3.4:6443: connect: connection refused", "listens at 1.2.3.4:6443", "curl"},
		{"lease", "dial tcp: lookup a on 1.1.1.1:53: no such host", "no address of the API server a", "getent"},
		{"lease", "tls: x509: certificate has expired or is not yet valid: at", "clock is wrong", "timedatectl"},
		{"lease", "x509: certificate signed by unknown authority", "certificate authority", "certificate-authority-data"},
		{"lease", "Unauthorized", "doesn't accept", "openssl"},
		{"lease", `nodes "a" is forbidden: node "b" is not allowed`, `node "b" is not allowed`, "--hostname-override"},
		{"lease", "context deadline exceeded", "the API server doesn't answer lease in time", "readyz"},
		{"status", "can't reach the API server, or it fails: dial tcp 1.1.1.1:1: i/o timeout", "reached", "firewall"},
		{"status", "can't reach the API server, or it fails: odd", "doesn't take pod statuses", "readyz"},
		{"pleg", "pleg was last seen active 3m2s ago; threshold is 3m0s: pods", "for 3m2s", "crictl ps"},
		{"pleg", "not all pods of the runtime have been read yet", "just started", "crictl"},
		{"pleg", "containers of 2 pods can't be inspected; see", "2 pods", "pleg.event"},
		{"pleg", "rpc error: code = DeadlineExceeded desc = context deadline exceeded", "doesn't answer in time", "uptime"},
		{"podsync", "can't read the container runtime: rpc error: code = Unavailable", "isn't there", "containerd"},
		{"podsync", "can't read the container runtime: cgroup odd", "cgroup odd", "containerd"},
		{"podsync", "waiting for the node's facts (node.object, node.machine)", "kubelot-stats", "lease and stats"},
		{"podsync", "2 pods wait for the Node as the API server has it (x)", "has the Node", "kubectl get node"},
		{"podsync", "2 pods wait for the node's devices (x)", "kubelot-resource", "kubelot-resource"},
		{"podsync", "waiting for the node's cgroups before", "cgroups", "cgroup driver"},
		{"podsync", "waiting for what an earlier run left on the bus: x", "from the bus", "kubelot-bus"},
		{"probe", "3 exec probes can't run, their last verdicts stay valid", "exec probes", "probe.result"},
		{"resource", "can't write what pods have to the state files, so that", "state files", "df -h"},
		{"resource", "can't write what pods have to the state files: no space left on device", "a disk is full", "df -h"},
		{"api", "can't serve healthz: listen tcp: bind: address already in use", "another process has the port", "ss -ltnp"},
		{"api", "can't serve healthz: listen tcp: odd", "healthzBindAddress", "config check"},
		{"gc", "signals of filesystems: no reading for more than 1m: a filesystem hangs, see", "doesn't answer", "umount"},
		{"gc", "collection of images: odd", "can't be", "gc --dry-run"},
		{"gc", "shutdown of the node: odd", "shutdown", "logind"},
		{"stats", "leaving out figures that can't be read: out-of-memory kills: x", "/dev/kmsg", "CAP_SYSLOG"},
		{"stats", "leaving out figures that can't be read: x", "figures", "journalctl -u kubelot-stats"},
		{"stats", "write x: read-only file system", "read-only", "remount"},
		{"gc", "kubelot-a says b in schema 3, and this kubelot-gc reads schema 2", "too far apart", "upgrade"},
		{"gc", "the changed configuration is not taken: maxPods: odd", "goes on with the one it has", "config check"},
		{"volume", "what nobody knows", "what nobody knows", "journalctl -u kubelot-volume"},
	} {
		cause, advice := explain(c.daemon, c.message)
		if !strings.Contains(cause, c.cause) || !strings.Contains(advice, c.advice) {
			t.Errorf("%s: %s:\ncause  %q, want %q\nadvice %q, want %q", c.daemon, c.message, cause, c.cause, advice, c.advice)
		}
	}
}

// A rule whose text asks for a group that its expression lacks would show {1} to a person.
func TestRulesFillInTheirTexts(t *testing.T) {
	for _, r := range rules {
		groups := regexp.MustCompile(r.match).NumSubexp()
		for _, text := range []string{r.cause, r.advice} {
			for _, m := range regexp.MustCompile(`\{[^}]*\}`).FindAllString(text, -1) {
				if m != "{daemon}" && (m != "{1}" || groups == 0) {
					t.Errorf("%s: %s has no value in %q", r.match, m, text)
				}
			}
			if text == "" || strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q must be a clause", r.match, text)
			}
		}
	}
}

// What may be the cause of the rest comes first.
func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		findings []Finding
		want     []Count
	}{
		"all is well": {[]Finding{Good(Machine, "a", ""), Good(Daemon, "b", "")}, nil},
		"machine": {
			[]Finding{Bad(Degraded, "a", "", "", ""), Bad(Machine, "b", "", "", ""), Bad(Degraded, "c", "", "", "")},
			[]Count{{Machine, 1}, {Degraded, 2}},
		},
		"runtime": {
			[]Finding{Bad(Daemon, "a", "", "", ""), Good(Machine, "b", ""), Bad(Runtime, "c", "", "", "")},
			[]Count{{Runtime, 1}, {Daemon, 1}},
		},
		"bus": {[]Finding{Bad(Bus, "a", "", "", "")}, []Count{{Bus, 1}}},
		"daemon": {
			[]Finding{Bad(Degraded, "a", "", "", ""), Bad(Daemon, "b", "", "", "")},
			[]Count{{Daemon, 1}, {Degraded, 1}},
		},
		"degraded": {[]Finding{Good(Daemon, "a", ""), Bad(Degraded, "b", "", "", "")}, []Count{{Degraded, 1}}},
	} {
		if got := Tally(c.findings); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What a runtime says doesn't break the lines.
func TestTextHasALineForEach(t *testing.T) {
	got := Text([]Finding{
		Good(Machine, "user", "root"), Bad(Runtime, "runtime", "a\nb", "c\x1b[2J", "do it"),
	}, paint.Painter{})
	want := "ok   user: root\nBAD  runtime: a | b\n     cause: c\\x1b[2J\n     -> do it\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !strings.Contains(Text([]Finding{Bad(Bus, "bus", "", "", "")}, paint.Painter{On: true}), "\x1b[31mBAD") {
		t.Error("no colour on a terminal")
	}
}
